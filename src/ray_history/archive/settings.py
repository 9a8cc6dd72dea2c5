"""Where the archive is: one storage URL, or any of the ways KubeRay's Go binaries were configured.

Precedence, first match wins:
1. `--storage URL`, then `RAY_HISTORY_STORAGE`: names the place outright;
2. upstream's `STORAGE_BACKEND` (environment), then `--storage-backend` / `--runtime-class-name` (flags): environment
   wins over flags, as upstream.
A variable set to the empty string counts as unset. Credentials come from the environment only, never from the URL.
The JSON config file follows each Go backend's own rule, because an image swap must not change where data goes:
s3 takes endpoint, region, path style and SSL from the file alone when there is one; azure and gcs overlay it on the
environment; oss reads the file instead of the environment.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .errors import Misconfigured

DEFAULT_BUCKET = "ray-historyserver"

URL_FORMS = "file:///dir, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, oss://bucket/prefix"

_BACKENDS = {
    "s3": "s3",
    "gcs": "gs",
    "azureblob": "az",
    "aliyunoss": "oss",
    "localtest": "file",
}
_TRUE = {"1", "t", "true"}
_FALSE = {"0", "f", "false"}


@dataclass(frozen=True, slots=True)
class Upstream:
    """What the Go binaries' storage flags said; the environment overrides each."""

    backend: str = ""
    config_path: str = ""
    root: str = ""


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """A local directory."""

    path: Path

    @property
    def url(self) -> str:
        return self.path.absolute().as_uri()


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Memory of this process, shared by name; for tests."""

    name: str

    @property
    def url(self) -> str:
        return f"memory://{self.name}"


@dataclass(frozen=True, slots=True)
class S3Settings:
    """AWS S3 or anything that speaks its protocol."""

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
        return f"s3://{_place(self.bucket, self.root)}"


@dataclass(frozen=True, slots=True)
class GcsSettings:
    """Google Cloud Storage with Application Default Credentials."""

    bucket: str
    root: str = ""
    endpoint: str | None = None
    """Another server than Google's (`STORAGE_EMULATOR_HOST`); asked without credentials unless there is a token."""
    bearer_token: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"gs://{_place(self.bucket, self.root)}"


@dataclass(frozen=True, slots=True)
class AzureSettings:
    """Azure Blob Storage by connection string, or by account URL and Azure's default credentials."""

    container: str
    root: str = ""
    account: str = ""
    endpoint: str = ""
    """Blob endpoint of the account, without the container."""
    account_key: str | None = field(default=None, repr=False)
    sas: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"az://{_place(self.container, self.root)}"


@dataclass(frozen=True, slots=True)
class OssSettings:
    """Aliyun OSS by static keys, or by RRSA/OIDC as ack-pod-identity-webhook injects it."""

    bucket: str
    root: str = ""
    endpoint: str = ""
    region: str = ""
    access_key_id: str | None = None
    access_key_secret: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    role_arn: str | None = None
    oidc_provider_arn: str | None = None
    oidc_token_file: str | None = None
    sts_endpoint: str = "https://sts.aliyuncs.com"

    @property
    def url(self) -> str:
        return f"oss://{_place(self.bucket, self.root)}"


StorageSettings = DirectorySettings | MemorySettings | S3Settings | GcsSettings | AzureSettings | OssSettings


def resolve(url: str | None, upstream: Upstream, environ: Mapping[str, str]) -> StorageSettings:
    """The settings that flags, environment and config file add up to."""
    env = {name: value for name, value in environ.items() if value}
    url = url or env.get("RAY_HISTORY_STORAGE")
    if url:
        return _from_url(url, env)
    backend = (env.get("STORAGE_BACKEND") or upstream.backend).strip().lower()
    if not backend:
        raise Misconfigured(f"no storage given: use --storage URL ({URL_FORMS}) or set RAY_HISTORY_STORAGE")
    scheme = _BACKENDS.get(backend)
    if scheme is None:
        raise Misconfigured(f"storage backend {backend!r} is unknown: use one of {', '.join(_BACKENDS)}")
    root = env.get("STORAGE_ROOT_DIR") or env.get("RAY_ROOT_DIR") or upstream.root
    config = _read_config(env.get("STORAGE_BACKEND_CONFIG_PATH") or upstream.config_path)
    return _build(scheme, "", root, env, config)


def _from_url(url: str, env: Mapping[str, str]) -> StorageSettings:
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise Misconfigured(
            "the storage URL takes no credentials, query or fragment: put keys into the environment "
            "(AWS_ACCESS_KEY_ID, AZURE_STORAGE_CONNECTION_STRING, OSS_ACCESS_KEY_ID, ...)"
        )
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.strip("/"):
            raise Misconfigured(f"{url!r} is no directory: write file:///absolute/path")
        return DirectorySettings(Path(unquote(parts.path)))
    if parts.scheme == "memory":
        return MemorySettings(parts.netloc + parts.path.rstrip("/"))
    if parts.scheme not in ("s3", "gs", "az", "oss"):
        raise Misconfigured(f"storage URL {url!r} is not understood: use one of {URL_FORMS}")
    if not parts.netloc:
        raise Misconfigured(f"storage URL {url!r} names no bucket: write {parts.scheme}://bucket/prefix")
    return _build(parts.scheme, parts.netloc, unquote(parts.path), env, {})


def _build(scheme: str, bucket: str, root: str, env: Mapping[str, str], config: Mapping[str, str]) -> StorageSettings:
    match scheme:
        case "file":
            return DirectorySettings(Path(root or DEFAULT_BUCKET))
        case "s3":
            return _s3(bucket, _root(root), env, config)
        case "gs":
            return _gcs(bucket, _root(root), env, config)
        case "az":
            return _azure(bucket, _root(root), env, config)
        case _:
            return _oss(bucket, _root(root), env, config)


def _s3(bucket: str, root: str, env: Mapping[str, str], config: Mapping[str, str]) -> S3Settings:
    if config:
        endpoint, region = config.get("s3Endpoint", ""), config.get("s3Region", "")
        path_style, no_ssl = config.get("s3ForcePathStyle", ""), config.get("s3DisableSSL", "")
    else:
        endpoint = env.get("S3_ENDPOINT") or env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or ""
        region = env.get("S3_REGION", "")
        path_style, no_ssl = env.get("S3FORCE_PATH_STYLE", ""), env.get("S3DISABLE_SSL", "")
    full = _endpoint(endpoint, "S3_ENDPOINT", plain=_boolean(no_ssl, "S3DISABLE_SSL") is True)
    return S3Settings(
        bucket=bucket or config.get("s3Bucket") or env.get("S3_BUCKET") or DEFAULT_BUCKET,
        root=root,
        endpoint=full,
        region=region or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION"),
        path_style=_path_style(_boolean(path_style, "S3FORCE_PATH_STYLE"), full),
        access_key_id=env.get("AWS_ACCESS_KEY_ID") or env.get("AWS_S3ID"),
        secret_access_key=env.get("AWS_SECRET_ACCESS_KEY") or env.get("AWS_S3SECRET"),
        session_token=env.get("AWS_SESSION_TOKEN") or env.get("AWS_S3TOKEN"),
        profile=env.get("AWS_PROFILE"),
    )


def _path_style(forced: bool | None, endpoint: str | None) -> bool:
    """Upstream asks for virtual hosts unless told otherwise; where those cannot resolve, paths are what works."""
    if forced is not None or endpoint is None:
        return forced is not False
    host = urlsplit(endpoint).hostname or ""
    inside = host.endswith((".svc", ".local", ".localhost", ".internal", ".amazonaws.com"))
    return inside or "." not in host or is_ip_address(host)


def is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _gcs(bucket: str, root: str, env: Mapping[str, str], config: Mapping[str, str]) -> GcsSettings:
    bucket = bucket or config.get("gcsBucket") or env.get("GCS_BUCKET") or ""
    if not bucket:
        raise Misconfigured("no GCS bucket given: set GCS_BUCKET (or gcsBucket in the config file)")
    emulator = env.get("STORAGE_EMULATOR_HOST", "")
    endpoint = _endpoint(emulator, "STORAGE_EMULATOR_HOST", plain=True)
    return GcsSettings(bucket, root, endpoint, env.get("GOOGLE_BEARER_TOKEN"))


def _azure(container: str, root: str, env: Mapping[str, str], config: Mapping[str, str]) -> AzureSettings:
    container = container or config.get("azureContainer") or env.get("AZURE_STORAGE_CONTAINER") or DEFAULT_BUCKET
    connection = config.get("azureConnectionString") or env.get("AZURE_STORAGE_CONNECTION_STRING") or ""
    account_url = config.get("azureAccountURL") or env.get("AZURE_STORAGE_ACCOUNT_URL") or ""
    mode = (config.get("azureAuthMode") or env.get("AZURE_STORAGE_AUTH_MODE") or "").strip().lower()
    by_identity = mode in ("workload_identity", "default")
    if connection and not by_identity:
        return _azure_connection(container, root, connection)
    if mode == "connection_string":
        raise Misconfigured("AZURE_STORAGE_AUTH_MODE is connection_string: set AZURE_STORAGE_CONNECTION_STRING too")
    if not account_url:
        raise Misconfigured(
            "no Azure account given: set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_URL "
            "(https://<account>.blob.core.windows.net) to use Azure's default credentials"
        )
    parts = urlsplit(account_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Misconfigured(
            f"AZURE_STORAGE_ACCOUNT_URL {account_url!r} is no URL like https://<account>.blob.core.windows.net"
        )
    account = parts.path.strip("/") or parts.hostname.split(".")[0]
    return AzureSettings(container, root, account, account_url.rstrip("/"))


_AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The emulator's well-known key, published by Microsoft; it opens nothing but an emulator."""


def _azure_connection(container: str, root: str, connection: str) -> AzureSettings:
    fields = dict(part.split("=", 1) for part in connection.split(";") if "=" in part)
    if fields.get("UseDevelopmentStorage", "").lower() == "true":
        return AzureSettings(
            container, root, "devstoreaccount1", "http://127.0.0.1:10000/devstoreaccount1", _AZURITE_KEY
        )
    account = fields.get("AccountName", "")
    endpoint = fields.get("BlobEndpoint", "").rstrip("/")
    if not endpoint and account:
        protocol = fields.get("DefaultEndpointsProtocol", "https")
        endpoint = f"{protocol}://{account}.blob.{fields.get('EndpointSuffix', 'core.windows.net')}"
    account = account or (urlsplit(endpoint).hostname or "").split(".")[0]
    key, sas = fields.get("AccountKey"), fields.get("SharedAccessSignature")
    if not endpoint or not (key or sas):
        raise Misconfigured(
            "AZURE_STORAGE_CONNECTION_STRING is incomplete: it needs AccountName or BlobEndpoint, "
            "and AccountKey or SharedAccessSignature"
        )
    return AzureSettings(container, root, account, endpoint, key, sas)


def _oss(bucket: str, root: str, env: Mapping[str, str], config: Mapping[str, str]) -> OssSettings:
    def pick(key: str, variable: str) -> str:
        return config.get(key, "") if config else env.get(variable, "")

    bucket = bucket or pick("ossBucket", "OSS_BUCKET")
    region = pick("ossRegion", "OSS_REGION").removeprefix("oss-")
    endpoint = pick("ossEndpoint", "OSS_ENDPOINT") or (f"oss-{region}.aliyuncs.com" if region else "")
    if not bucket or not endpoint:
        missing = "OSS_BUCKET" if not bucket else "OSS_ENDPOINT or OSS_REGION"
        raise Misconfigured(f"the OSS settings are incomplete: set {missing} (or its key in the config file)")
    full = _endpoint(endpoint, "OSS_ENDPOINT", plain=False) or ""
    if not region:
        region = (urlsplit(full).hostname or "").split(".")[0].removeprefix("oss-").removesuffix("-internal")
    return OssSettings(
        bucket=bucket,
        root=root,
        endpoint=full,
        region=region,
        access_key_id=env.get("OSS_ACCESS_KEY_ID") or env.get("ALIBABA_CLOUD_ACCESS_KEY_ID"),
        access_key_secret=env.get("OSS_ACCESS_KEY_SECRET") or env.get("ALIBABA_CLOUD_ACCESS_KEY_SECRET"),
        security_token=env.get("OSS_SESSION_TOKEN") or env.get("ALIBABA_CLOUD_SECURITY_TOKEN"),
        role_arn=env.get("ALIBABA_CLOUD_ROLE_ARN"),
        oidc_provider_arn=env.get("ALIBABA_CLOUD_OIDC_PROVIDER_ARN"),
        oidc_token_file=env.get("ALIBABA_CLOUD_OIDC_TOKEN_FILE"),
        sts_endpoint=_endpoint(
            env.get("ALIBABA_CLOUD_STS_ENDPOINT", "sts.aliyuncs.com"), "ALIBABA_CLOUD_STS_ENDPOINT", plain=False
        )
        or "",
    )


def _read_config(path: str) -> Mapping[str, str]:
    """The Go binaries' JSON file; numbers and booleans are taken as text, which upstream could not."""
    if not path:
        return {}
    try:
        raw = json.loads(Path(path).read_bytes() or b"{}")
    except OSError as error:
        raise Misconfigured(f"storage config file {path}: {error.strerror}") from error
    except ValueError as error:
        raise Misconfigured(f"storage config file {path} is no JSON: {error}") from error
    if not isinstance(raw, dict):
        raise Misconfigured(f'storage config file {path} must hold a JSON object such as {{"s3Bucket": "..."}}')
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in raw.items()
        if value not in (None, "")
    }


def _endpoint(text: str, setting: str, *, plain: bool) -> str | None:
    """`host:port` or a URL, as a URL."""
    text = text.strip().rstrip("/")
    if not text:
        return None
    if "://" not in text:
        text = ("http://" if plain else "https://") + text
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise Misconfigured(f"{setting} {text!r} is no address: write host:port or http(s)://host:port")
    return text


def _boolean(text: str, setting: str) -> bool | None:
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    if lowered:
        raise Misconfigured(f"{setting} {text!r} is neither true nor false")
    return None


def _root(path: str) -> str:
    pieces = [piece for piece in path.split("/") if piece]
    if any(piece in (".", "..") for piece in pieces):
        raise Misconfigured(f"the storage prefix {path!r} must not contain '.' or '..'")
    return "/".join(pieces)


def _place(bucket: str, root: str) -> str:
    return f"{bucket}/{root}" if root else bucket
