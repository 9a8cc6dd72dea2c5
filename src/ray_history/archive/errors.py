"""The errors of an archive. None of them means "it is empty".

    ArchiveError
    ├── NotFound        the object, the bucket or the directory is not there
    ├── Denied          the store rejected the credentials, or they do not allow the operation
    ├── Unreachable     no usable answer in time: network, wrong endpoint, server down
    ├── Misconfigured   a setting is missing or wrong
    └── TooLarge        the object is larger than anything of its kind

Every message is one line: what failed, and which setting to check.
"""

from __future__ import annotations


class ArchiveError(Exception):
    """An operation on the archive failed; the message says what to fix."""


class NotFound(ArchiveError):
    """The object, the bucket or the directory is not there."""


class Denied(ArchiveError):
    """The store rejected the credentials, or they do not allow the operation."""


class Unreachable(ArchiveError):
    """The store gave no usable answer within the deadline."""


class Misconfigured(ArchiveError):
    """A storage setting is missing or wrong."""


class TooLarge(ArchiveError):
    """The object is larger than anything of its kind that a program of ours writes."""
