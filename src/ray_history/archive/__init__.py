"""The archive: object keys, event files, logs and the stores that hold them.

This room knows bytes and keys. It does not know HTTP, what an event means, or SQL.
"""
