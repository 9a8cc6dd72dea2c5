"""What can go wrong with an archive, and never the same as "it is empty".

    ArchiveError
    ├── NotFound        the object, the bucket or the directory is not there
    ├── Denied          the store refused who we are or what we asked for
    ├── Unreachable     no answer in time: network, wrong endpoint, server down or broken
    └── Misconfigured   a setting is missing or cannot be right; nothing was tried

Every message is one line that a person can act on: what failed, and which setting to look at.
"""

from __future__ import annotations


class ArchiveError(Exception):
    """Something about the archive went wrong; the message says what and how to fix it."""


class NotFound(ArchiveError):
    """The object, the bucket or the directory is not there."""


class Denied(ArchiveError):
    """The store refused the credentials, or they do not allow the operation."""


class Unreachable(ArchiveError):
    """The store gave no usable answer within the deadline."""


class Misconfigured(ArchiveError):
    """A storage setting is missing or wrong."""
