"""Open sessions: found, opened once, kept fresh, closed."""
