"""Turns exceptions of the object store client into the archive's four errors, with the setting to check."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from ray_history.archive.errors import ArchiveError, Denied, Misconfigured, NotFound, Unreachable

_MISSING_BUCKET = ("NoSuchBucket", "ContainerNotFound", "specified bucket does not exist")
_DENIED_CODES = (
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AuthenticationFailed",
    "AuthorizationFailure",
    "InvalidToken",
    "ExpiredToken",
    "Invalid Access Key",
    "401 Unauthorized",
    "403 Forbidden",
)
_CLOCK_CODES = ("RequestTimeTooSkewed",)
_REGION_CODES = ("PermanentRedirect", "AuthorizationHeaderMalformed", "301 Moved Permanently", "IllegalLocation")
_NO_CREDENTIALS = ("169.254.", "metadata.google.internal", "DefaultAzureCredential")
"""The client found no keys, looked for the identity of a cloud machine, and there was none."""

_UNUSABLE_CREDENTIALS = ("service account file", "Error reading pem file")
"""The client cannot use a file with credentials; it sent no request."""

_REQUEST = re.compile(r"Error performing (?P<method>[A-Z]+) (?P<url>\S+) in .*? - (?P<outcome>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Hints:
    """The settings of a backend to check after a failure."""

    bucket: str
    endpoint: str
    region: str
    credentials: str


@contextmanager
def translated(url: str, hints: Hints, doing: str) -> Iterator[None]:
    """Raise an ArchiveError in place of the client's exceptions; `doing` says what failed: "reading x from"."""
    try:
        yield
    except ArchiveError:
        raise
    except (BaseError, FileNotFoundError, ValueError, OSError) as error:
        raise classify(url, hints, doing, error) from error


def classify(url: str, hints: Hints, doing: str, error: Exception) -> ArchiveError:
    text = str(error)
    what = f"{doing} {url}: {first_line(text)}"
    if any(code in text for code in _MISSING_BUCKET):
        return NotFound(f"{doing} {url}: the bucket or container does not exist; check {hints.bucket}")
    if isinstance(error, FileNotFoundError):
        return NotFound(f"{doing} {url}: not found")
    if any(sign in text for sign in _NO_CREDENTIALS):
        return Denied(f"{doing} {url}: no usable credentials were found; set {hints.credentials}")
    if any(code in text for code in _CLOCK_CODES):
        return Denied(f"{what}; set the clock of this machine, which is {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or any(code in text for code in _DENIED_CODES):
        return Denied(f"{what}; check {hints.credentials}")
    if any(code in text for code in _REGION_CODES):
        return Misconfigured(f"{what}; check {hints.region}")
    if any(sign in text for sign in _UNUSABLE_CREDENTIALS):
        return Misconfigured(f"{what}; check {hints.credentials}")
    if isinstance(error, ValueError):
        return Misconfigured(f"{what}; check {hints.bucket}")
    return Unreachable(f"{what}; check {hints.endpoint}")


def first_line(text: str) -> str:
    """The essential part of a client's long message, in one line."""
    text = text.partition("\n\nDebug source")[0]
    code = re.search(r"<Code>(.*?)</Code>", text, re.DOTALL)
    message = re.search(r"<Message>(.*?)</Message>", text, re.DOTALL)
    if code:
        text = code[1] + (f" ({message[1]})" if message else "")
    elif request := _REQUEST.search(text):  # the query may hold a signature: not for logs
        text = f"{request['method']} {request['url'].partition('?')[0]}: {request['outcome']}"
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:297] + "..."
