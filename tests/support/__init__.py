"""The outside world of the tests: real storage servers where one can be had, named stand-ins where not."""
