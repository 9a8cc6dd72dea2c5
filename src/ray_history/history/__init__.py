"""What events mean: events in, tables out. Files in a directory are all it knows of the world."""
