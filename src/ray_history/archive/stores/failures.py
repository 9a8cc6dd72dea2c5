"""Turns what the object store client raises into one of the archive's four errors, with the setting to look at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from ..errors import ArchiveError, Denied, Misconfigured, NotFound, Unreachable

_MISSING_BUCKET = ("NoSuchBucket", "ContainerNotFound", "specified bucket does not exist")
_DENIED_CODES = (
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AuthenticationFailed",
    "AuthorizationFailure",
    "InvalidToken",
    "ExpiredToken",
    "RequestTimeTooSkewed",
    "Invalid Access Key",
    "401 Unauthorized",
    "403 Forbidden",
)
_REGION_CODES = ("PermanentRedirect", "AuthorizationHeaderMalformed", "301 Moved Permanently", "IllegalLocation")
_NO_CREDENTIALS = ("169.254.", "metadata.google.internal", "DefaultAzureCredential")
"""Signs that the client, finding no keys, went looking for the identity of a cloud machine and there was none."""

_REQUEST = re.compile(r"Error performing (?P<method>[A-Z]+) (?P<url>\S+) in .*? - (?P<outcome>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Blame:
    """Which settings of a backend to name when something fails."""

    bucket: str
    endpoint: str
    region: str
    credentials: str


BLAME: Mapping[str, Blame] = {
    "s3": Blame(
        "the bucket in --storage or S3_BUCKET",
        "S3_ENDPOINT (and S3DISABLE_SSL for plain http)",
        "S3_REGION",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the role of this machine or pod",
    ),
    "gs": Blame(
        "the bucket in --storage or GCS_BUCKET",
        "the network, or STORAGE_EMULATOR_HOST",
        "the bucket's location",
        "GOOGLE_APPLICATION_CREDENTIALS or Workload Identity",
    ),
    "az": Blame(
        "the container in --storage or AZURE_STORAGE_CONTAINER",
        "AZURE_STORAGE_ACCOUNT_URL or the endpoint in AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_ACCOUNT_URL",
        "AZURE_STORAGE_CONNECTION_STRING, or the identity of this machine or pod",
    ),
    "oss": Blame(
        "the bucket in --storage or OSS_BUCKET",
        "OSS_ENDPOINT",
        "OSS_REGION",
        "OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET, or ALIBABA_CLOUD_ROLE_ARN and its OIDC variables",
    ),
    "memory": Blame("the name in --storage", "nothing", "nothing", "nothing"),
}


@contextmanager
def translated(url: str, doing: str) -> Iterator[None]:
    """Raise an ArchiveError in place of whatever the client raises inside the block."""
    try:
        yield
    except ArchiveError:
        raise
    except (BaseError, FileNotFoundError, ValueError, OSError) as error:
        raise classify(url, doing, error) from error


def classify(url: str, doing: str, error: Exception) -> ArchiveError:
    blame = BLAME[url.partition("://")[0]]
    text = str(error)
    what = f"{doing} {url}: {first_line(text)}"
    if any(code in text for code in _MISSING_BUCKET):
        return NotFound(f"{doing} {url}: the bucket or container does not exist; check {blame.bucket}")
    if isinstance(error, FileNotFoundError):
        return NotFound(f"{doing} {url}: not found")
    if any(sign in text for sign in _NO_CREDENTIALS):
        return Denied(f"{doing} {url}: no usable credentials were found; set {blame.credentials}")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or any(code in text for code in _DENIED_CODES):
        return Denied(f"{what}; check {blame.credentials}")
    if any(code in text for code in _REGION_CODES):
        return Misconfigured(f"{what}; check {blame.region}")
    if isinstance(error, ValueError):
        return Misconfigured(f"{what}; check {blame.bucket}")
    return Unreachable(f"{what}; check {blame.endpoint}")


def first_line(text: str) -> str:
    """The telling part of a client's long message, in one line."""
    text = text.partition("\n\nDebug source")[0]
    code = re.search(r"<Code>(.*?)</Code>", text, re.DOTALL)
    message = re.search(r"<Message>(.*?)</Message>", text, re.DOTALL)
    if code:
        text = code[1] + (f" ({message[1]})" if message else "")
    elif request := _REQUEST.search(text):  # the query may hold a signature: not for logs
        text = f"{request['method']} {request['url'].partition('?')[0]}: {request['outcome']}"
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:297] + "..."
