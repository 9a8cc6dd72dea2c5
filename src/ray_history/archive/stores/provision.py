"""Sends the request that creates a missing bucket (S3) or container (Azure), as KubeRay's collector does."""

from __future__ import annotations

from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from ray_history.archive.errors import Denied, Unreachable

from .cloud import PROBING
from .failures import Hints, first_line


def send_create_request(url: str, hints: Hints, request: Request) -> None:
    """Send the request; it is no error if the bucket exists by now."""
    try:
        with urlopen(request, timeout=PROBING.deadline):  # noqa: S310 - the address comes from the settings
            return
    except HTTPError as error:
        reason = first_line(error.read(2000).decode(errors="replace")) or str(error)
        if error.code == 409 and ("AlreadyExists" in reason or "AlreadyOwnedByYou" in reason):
            return
        if error.code in (401, 403):
            raise Denied(
                f"creating the bucket of {url}: {reason}; create it first or check {hints.credentials}"
            ) from error
        raise Unreachable(f"creating the bucket of {url}: {reason}; create it first") from error
    except (URLError, TimeoutError) as error:
        raise Unreachable(f"creating the bucket of {url}: {error}; check {hints.endpoint}") from error
