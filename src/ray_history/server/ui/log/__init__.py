"""The page of a log file."""
