"""Fuzzing of requests to a running server, by viewers with different rights.

place        a server with two sessions, its viewers, and its description
walk         goes from the sessions to their tasks, actors, jobs and logs, with any parameters on the way
test_walk    the bounded, deterministic part
"""
