"""Indexes: the tables of sessions, built once, published in the archive for all servers, and cached on disk.

This room handles files, sizes and digests. It does not know what is inside a table.
"""
