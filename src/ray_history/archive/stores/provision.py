"""Creates a missing bucket (S3) or container (Azure), as KubeRay's collector does.

The object store client has no call for it. For S3 the client signs the address of the empty key, which is the bucket
itself; for Azure the request is signed here with the account key, or carries a token of the default credential.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import obstore
from obstore.store import S3Store

from ..errors import Denied, NotFound, Unreachable
from ..settings import AzureSettings, GcsSettings, MemorySettings, OssSettings, S3Settings
from .clients import PROBING, CloudSettings, build
from .failures import BLAME, first_line, translated

_AZURE_VERSION = "2021-12-02"


def create_bucket(settings: CloudSettings) -> None:
    """Make the bucket or container; it is no error when another collector was faster."""
    match settings:
        case S3Settings():
            _create_s3(settings)
        case AzureSettings():
            _create_azure(settings)
        case GcsSettings() | OssSettings():
            blame = BLAME[settings.url.partition("://")[0]]
            raise NotFound(f"{settings.url}: the bucket does not exist; create it first or check {blame.bucket}")
        case MemorySettings():
            return


def _create_s3(settings: S3Settings) -> None:
    client = build(settings, PROBING, root="")
    assert isinstance(client, S3Store)  # noqa: S101 - S3 settings build nothing else
    with translated(settings.url, "creating the bucket of"):
        address = obstore.sign(client, "PUT", "", timedelta(minutes=1))
    body = b""
    if settings.region and settings.region != "us-east-1":
        body = (
            b'<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LocationConstraint>'
            + settings.region.encode()
            + b"</LocationConstraint></CreateBucketConfiguration>"
        )
    _send(settings, Request(address, data=body, method="PUT"))  # noqa: S310


def _create_azure(settings: AzureSettings) -> None:
    address = f"{settings.endpoint}/{settings.container}?restype=container"
    if settings.sas:
        address += "&" + settings.sas.lstrip("?")
    moment = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": moment, "x-ms-version": _AZURE_VERSION, "Content-Length": "0"}
    if settings.account_key:
        headers["Authorization"] = _shared_key(settings, headers)
    elif not settings.sas:
        headers["Authorization"] = f"Bearer {_azure_token(settings)}"
    _send(settings, Request(address, headers=headers, method="PUT"))  # noqa: S310


def _shared_key(settings: AzureSettings, headers: dict[str, str]) -> str:
    """Azure's Shared Key over a request that has no body and no other headers."""
    path = urlsplit(settings.endpoint).path
    resource = f"/{settings.account}{path}/{settings.container}\nrestype:container"
    signed = f"x-ms-date:{headers['x-ms-date']}\nx-ms-version:{headers['x-ms-version']}"
    text = "PUT" + "\n" * 12 + signed + "\n" + resource
    key = base64.b64decode(settings.account_key or "")
    signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
    return f"SharedKey {settings.account}:{signature}"


def _azure_token(settings: AzureSettings) -> str:
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        raise NotFound(
            f"{settings.url}: the container does not exist and cannot be created with the identity of this machine; "
            "create it first, or pip install 'ray-history[azure]'"
        ) from error
    with DefaultAzureCredential() as credential:
        return str(credential.get_token("https://storage.azure.com/.default").token)


def _send(settings: CloudSettings, request: Request) -> None:
    blame = BLAME[settings.url.partition("://")[0]]
    try:
        with urlopen(request, timeout=PROBING.deadline):  # noqa: S310 - the address comes from the settings
            return
    except HTTPError as error:
        reason = first_line(error.read(2000).decode(errors="replace")) or str(error)
        if error.code == 409 and ("AlreadyExists" in reason or "AlreadyOwnedByYou" in reason):
            return
        if error.code in (401, 403):
            raise Denied(
                f"creating the bucket of {settings.url}: {reason}; create it first or check {blame.credentials}"
            ) from error
        raise Unreachable(f"creating the bucket of {settings.url}: {reason}; create it first") from error
    except (URLError, TimeoutError) as error:
        raise Unreachable(f"creating the bucket of {settings.url}: {error}; check {blame.endpoint}") from error
