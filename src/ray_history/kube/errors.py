"""Errors of requests to an API server.

KubeError
├── Unreachable     no complete answer in time, or a temporary failure (429, 5xx)
├── Denied          401 or 403: wrong credentials, or not allowed
├── NotFound        404: no such object, or no such resource (KubeRay is not installed)
├── Gone            410: the resource version is too old; list again
├── Refused         any other error status
└── Misconfigured   the configuration is invalid; no request was sent
"""

from __future__ import annotations


class KubeError(Exception):
    """The API server gave no usable answer; the message gives the reason in one line."""


class Unreachable(KubeError):
    """No complete answer in time, or a temporary failure."""


class Denied(KubeError):
    """Wrong credentials (401), or not allowed (403)."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NotFound(KubeError):
    """No such object or resource."""


class Gone(KubeError):
    """The API server no longer has this resource version."""


class Refused(KubeError):
    """Any other error status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Misconfigured(KubeError):
    """The configuration of the API server is invalid."""
