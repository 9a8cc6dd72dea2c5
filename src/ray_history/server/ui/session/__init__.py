"""The page about one session."""
