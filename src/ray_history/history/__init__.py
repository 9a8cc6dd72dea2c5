"""The meaning of events: events in, tables out. This room knows files in a directory, and neither network nor clock."""
