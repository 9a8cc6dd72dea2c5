"""Log files: located, listed, streamed, followed."""
