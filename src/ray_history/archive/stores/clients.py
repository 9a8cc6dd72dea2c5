"""Builds the object store client for a place, from its settings."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from ..settings import AzureSettings, GcsSettings, MemorySettings, OssSettings, S3Settings, is_ip_address
from .credentials import azure_identity, oss_identity, s3_identity

if TYPE_CHECKING:
    from obstore.store import AzureConfig, ClientConfig, GCSConfig, RetryConfig, S3Config

CloudSettings = S3Settings | GcsSettings | AzureSettings | OssSettings | MemorySettings
Client = S3Store | GCSStore | AzureStore | MemoryStore

_memories: dict[str, MemoryStore] = {}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one operation may take."""

    deadline: float
    """Seconds after which nothing is tried again."""
    stalled: float
    """Seconds without a byte after which an attempt is given up."""
    attempt: float
    """Seconds one attempt may take even when bytes flow."""
    retries: int


WORKING = Patience(deadline=60, stalled=30, attempt=600, retries=10)
"""A store may be briefly overloaded or restarting; a put part of 8 MiB still fits into 30 s at 2 Mbit/s."""

PROBING = Patience(deadline=4, stalled=4, attempt=4, retries=2)
"""A wrong setting should be told within seconds."""


def build(
    settings: CloudSettings,
    patience: Patience = WORKING,
    *,
    root: str | None = None,
    headers: dict[str, str] | None = None,
) -> Client:
    """A client whose keys are relative to the settings' root, or to `root` when given."""
    if isinstance(settings, MemorySettings):
        return _memories.setdefault(settings.name, MemoryStore())
    prefix = (settings.root if root is None else root) or None
    options: ClientConfig = {
        "connect_timeout": timedelta(seconds=min(5, patience.stalled)),
        "read_timeout": timedelta(seconds=patience.stalled),
        "timeout": timedelta(seconds=patience.attempt),
        "user_agent": "ray-history",
    }
    if headers:
        options["default_headers"] = headers
    retry: RetryConfig = {
        "max_retries": patience.retries,
        "retry_timeout": timedelta(seconds=patience.deadline),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
    }
    match settings:
        case S3Settings():
            return _s3(settings, prefix, options, retry)
        case GcsSettings():
            return _gcs(settings, prefix, options, retry)
        case AzureSettings():
            return _azure(settings, prefix, options, retry)
        case OssSettings():
            return _oss(settings, prefix, options, retry)


def _s3(settings: S3Settings, prefix: str | None, options: ClientConfig, retry: RetryConfig) -> S3Store:
    config: S3Config = {"region": settings.region or "us-east-1"}
    if settings.endpoint:
        options["allow_http"] = settings.endpoint.startswith("http://")
        config["virtual_hosted_style_request"] = not settings.path_style
        config["endpoint"] = (
            settings.endpoint if settings.path_style else with_bucket_host(settings.endpoint, settings.bucket)
        )
    if settings.access_key_id:
        config["access_key_id"] = settings.access_key_id
        config["secret_access_key"] = settings.secret_access_key or ""
    if settings.session_token:
        config["session_token"] = settings.session_token
    return S3Store(
        settings.bucket,
        prefix=prefix,
        config=config,
        client_options=options,
        retry_config=retry,
        credential_provider=s3_identity(settings),
    )


def _gcs(settings: GcsSettings, prefix: str | None, options: ClientConfig, retry: RetryConfig) -> GCSStore:
    config: GCSConfig = {}
    token = settings.bearer_token
    if settings.endpoint:
        options["allow_http"] = settings.endpoint.startswith("http://")
        config["base_url"] = settings.endpoint
        token = token or "anybody"  # obstore 0.12 minds skip_signature for reads only
    if token:
        config["bearer_token"] = token
    return GCSStore(settings.bucket, prefix=prefix, config=config, client_options=options, retry_config=retry)


def _azure(settings: AzureSettings, prefix: str | None, options: ClientConfig, retry: RetryConfig) -> AzureStore:
    config: AzureConfig = {"account_name": settings.account, "endpoint": settings.endpoint}
    options["allow_http"] = settings.endpoint.startswith("http://")
    if settings.account_key:
        config["account_key"] = settings.account_key
    if settings.sas:
        config["sas_key"] = settings.sas
    return AzureStore(
        settings.container,
        prefix=prefix,
        config=config,
        client_options=options,
        retry_config=retry,
        credential_provider=azure_identity(settings),
    )


def _oss(settings: OssSettings, prefix: str | None, options: ClientConfig, retry: RetryConfig) -> S3Store:
    """OSS by its S3 protocol, which it serves on virtual hosts only."""
    options["allow_http"] = settings.endpoint.startswith("http://")
    config: S3Config = {
        "endpoint": with_bucket_host(settings.endpoint, settings.bucket),
        "virtual_hosted_style_request": True,
        "region": settings.region or "us-east-1",
    }
    return S3Store(
        settings.bucket,
        prefix=prefix,
        config=config,
        client_options=options,
        retry_config=retry,
        credential_provider=oss_identity(settings),
    )


def with_bucket_host(endpoint: str, bucket: str) -> str:
    """`https://host` as `https://bucket.host`; one that names the bucket already, or is an IP address, stays."""
    parts = urlsplit(endpoint)
    if parts.netloc.startswith(f"{bucket}.") or is_ip_address(parts.hostname or ""):
        return endpoint
    return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()
