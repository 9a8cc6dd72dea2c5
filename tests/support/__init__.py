"""The outside world of the tests: real servers where they can be installed, and named stand-ins where they cannot."""
