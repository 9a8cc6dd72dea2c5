"""`python -m ray_history`."""

from ray_history.cli import main

main()
