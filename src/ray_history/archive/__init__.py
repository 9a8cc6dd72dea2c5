"""The archive: object keys, event files, logs and the stores that hold them.

It handles bytes and keys, and does not depend on HTTP, the meaning of events, or SQL.
"""
