"""The bars above Ray's own pages."""
