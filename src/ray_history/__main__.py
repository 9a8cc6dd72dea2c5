"""`python -m ray_history`."""

from ray_history.cli.command import main

main()
