"""Builds of Ray's own frontend."""
