"""Compares what two versions of the server answer, over HTTP: a check to run before a large refactoring lands."""
