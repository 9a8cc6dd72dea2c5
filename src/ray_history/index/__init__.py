"""The index: the tables of a session, kept so that they are built once; in the bucket for all servers, and on disk.

This room knows files, sizes and digests. It does not know what is inside a table.
"""
