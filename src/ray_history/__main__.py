"""`python -m ray_history`."""

from .cli import main

main()
