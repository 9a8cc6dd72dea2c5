"""Measurements of the goals in docs/architecture.md: `make bench`, or `python -m bench NAME` for one of them."""
