"""The backend for AWS S3 and compatible servers."""

from __future__ import annotations

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit
from urllib.request import Request

import obstore
from obstore.store import S3Store

from ray_history.archive.errors import Misconfigured

from .addresses import DEFAULT_BUCKET, boolean, bucket_and_root, endpoint_url, is_ip_address, with_bucket_host
from .cloud import PROBING, CloudSettings, Patience
from .failures import Hints, translated
from .provision import send_create_request

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Credential


@dataclass(frozen=True, slots=True)
class S3Settings(CloudSettings):
    """AWS S3, or any server with its protocol."""

    hints = Hints(
        "the bucket in --storage or S3_BUCKET",
        "S3_ENDPOINT (S3DISABLE_SSL for plain http, S3FORCE_PATH_STYLE=true if buckets have no host names)",
        "S3_REGION",
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the role of this machine or pod",
    )

    bucket: str
    root: str = ""
    endpoint: str | None = None
    """Full URL with scheme; None for AWS."""
    region: str | None = None
    path_style: bool = True
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None

    @property
    def url(self) -> str:
        return f"s3://{bucket_and_root(self.bucket, self.root)}"

    @classmethod
    def build(cls, bucket: str, root: str, env: Mapping[str, str], config: Mapping[str, str]) -> Self:
        if config:
            endpoint, region = config.get("s3Endpoint", ""), config.get("s3Region", "")
            path_style, no_ssl = config.get("s3ForcePathStyle", ""), config.get("s3DisableSSL", "")
        else:
            endpoint = env.get("S3_ENDPOINT") or env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or ""
            region = env.get("S3_REGION", "")
            path_style, no_ssl = env.get("S3FORCE_PATH_STYLE", ""), env.get("S3DISABLE_SSL", "")
        full = endpoint_url(endpoint, "S3_ENDPOINT", plain=boolean(no_ssl, "S3DISABLE_SSL") is True)
        return cls(
            bucket=bucket or config.get("s3Bucket") or env.get("S3_BUCKET") or DEFAULT_BUCKET,
            root=root,
            endpoint=full,
            region=region or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION"),
            path_style=_path_style(boolean(path_style, "S3FORCE_PATH_STYLE"), full),
            access_key_id=env.get("AWS_ACCESS_KEY_ID") or env.get("AWS_S3ID"),
            secret_access_key=env.get("AWS_SECRET_ACCESS_KEY") or env.get("AWS_S3SECRET"),
            session_token=env.get("AWS_SESSION_TOKEN") or env.get("AWS_S3TOKEN"),
            profile=env.get("AWS_PROFILE"),
        )

    def client(self, patience: Patience, headers: Mapping[str, str]) -> S3Store:
        config: S3Config = {"region": self.region or "us-east-1"}
        if self.endpoint:
            config["virtual_hosted_style_request"] = not self.path_style
            config["endpoint"] = self.endpoint if self.path_style else with_bucket_host(self.endpoint, self.bucket)
        if self.access_key_id:
            config["access_key_id"] = self.access_key_id
            config["secret_access_key"] = self.secret_access_key or ""
        if self.session_token:
            config["session_token"] = self.session_token
        allow_http = (self.endpoint or "").startswith("http://")
        return S3Store(
            self.bucket,
            prefix=self.root or None,
            config=config,
            client_options=patience.client_options(allow_http=allow_http, headers=headers),
            retry_config=patience.retry_options(),
            credential_provider=_profile_credentials(self),
        )

    def create_bucket(self) -> None:
        # obstore has no call for it, but it signs the address of the empty key, which is the bucket itself.
        client = replace(self, root="").client(PROBING, {})
        with translated(self.url, self.hints, "creating the bucket of"):
            address = obstore.sign(client, "PUT", "", timedelta(minutes=1))
        body = b""
        if self.region and self.region != "us-east-1":
            body = (
                b'<CreateBucketConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><LocationConstraint>'
                + self.region.encode()
                + b"</LocationConstraint></CreateBucketConfiguration>"
            )
        send_create_request(self.url, self.hints, Request(address, data=body, method="PUT"))  # noqa: S310


def _path_style(forced: bool | None, endpoint: str | None) -> bool:
    """Whether the bucket stands in the path: by default where a virtual host would not resolve."""
    if forced is not None or endpoint is None:
        return forced is not False
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    if host.endswith((".svc", ".local", ".localhost", ".internal", ".amazonaws.com")) or is_ip_address(host):
        return True
    # SERVICE or SERVICE.NAMESPACE inside a Kubernetes cluster. Providers with virtual hosts have longer names, no port.
    return host.count(".") <= 1 or parts.port not in (None, 80, 443)


def _profile_credentials(settings: S3Settings) -> Any:
    """Credentials of a named AWS profile, which obstore does not read; None leaves the search to the client."""
    if settings.access_key_id or not (settings.profile or _shared_credentials_file().exists()):
        return None
    if os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE") or os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        return None
    static = _static_profile(settings.profile or "default")
    if static:
        return lambda: static
    try:
        from boto3 import Session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        if settings.profile:
            raise Misconfigured(
                f"AWS_PROFILE {settings.profile!r} needs more than two static keys: pip install 'ray-history[aws]'"
            ) from error
        return None
    return Boto3CredentialProvider(Session(profile_name=settings.profile))


def _shared_credentials_file() -> Path:
    return Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials")


def _static_profile(profile: str) -> S3Credential | None:
    parser = configparser.RawConfigParser()
    parser.read(_shared_credentials_file())
    if not parser.has_section(profile) or not parser.has_option(profile, "aws_secret_access_key"):
        return None
    section = parser[profile]
    return {
        "access_key_id": section["aws_access_key_id"],
        "secret_access_key": section["aws_secret_access_key"],
        "token": section.get("aws_session_token"),
        "expires_at": None,
    }
