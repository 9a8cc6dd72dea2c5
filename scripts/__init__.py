"""Programs for the maintenance of this repository; each runs alone, with Python's own library only."""
