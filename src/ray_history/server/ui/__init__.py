"""The server's own pages: templates and files of ours alone, no build, nothing from elsewhere."""
