"""Builds: a session's objects in, the files of an index out. Each build has its own process, which can be ended."""
