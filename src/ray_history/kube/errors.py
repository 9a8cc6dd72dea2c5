"""What can go wrong with the API server.

KubeError
├── Unreachable     no whole answer in time, or one that says that it cannot answer now
├── Denied          401 or 403: it does not know us, or does not let us
├── NotFound        404: no such thing, or no such kind of thing (KubeRay is not installed)
├── Gone            410: the point to go on from is too old; list again
├── Refused         any other answer that is none
└── Misconfigured   what we were told about it cannot be right; nothing was sent
"""

from __future__ import annotations


class KubeError(Exception):
    """The API server gave no usable answer; the message says why in one line."""


class Unreachable(KubeError):
    """No whole answer within the time."""


class Denied(KubeError):
    """The API server does not know us (401), or does not let us (403)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NotFound(KubeError):
    """There is no such thing."""


class Gone(KubeError):
    """A resource version that the API server no longer has."""


class Refused(KubeError):
    """Any other answer that is none."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Misconfigured(KubeError):
    """What we were told about the API server cannot be right."""
