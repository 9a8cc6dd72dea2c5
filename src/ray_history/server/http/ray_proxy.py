"""Requests that a Ray passes on to us: `ray start --head --proxy-server-url` shows a session in its own dashboard.

It passes on every answer but two, and answers those itself, for its own cluster, without a word: a 404, and one that it
cannot read, or not within 30 s. So through it nothing is a 404, and nobody waits that long.
"""

from __future__ import annotations

from starlette.types import Scope

PATIENCE = 20.0
"""Seconds after which the opening of a session is not waited for: the answer has to be made, too."""
GONE = 410
"""What a 404 becomes; the body is the same."""


def is_through_ray(scope: Scope) -> bool:
    """Ray says of every request that it is JSON; browsers and Ray's own clients say so of none without a body."""
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    return scope["method"] in ("GET", "HEAD") and any(kind.startswith(b"application/json") for kind in kinds)
