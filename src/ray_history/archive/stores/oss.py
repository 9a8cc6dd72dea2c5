"""The backend for Aliyun OSS, by its S3 protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from obstore.store import S3Store

from ray_history.archive.errors import Denied, Misconfigured, Unreachable

from .addresses import bucket_and_root, endpoint_url, with_bucket_host
from .cloud import CloudSettings, Patience
from .failures import Hints

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Credential


@dataclass(frozen=True, slots=True)
class OssSettings(CloudSettings):
    """Aliyun OSS by static keys, or by RRSA/OIDC as ack-pod-identity-webhook injects it."""

    hints = Hints(
        "the bucket in --storage or OSS_BUCKET",
        "OSS_ENDPOINT",
        "OSS_REGION",
        "OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET, or ALIBABA_CLOUD_ROLE_ARN and its OIDC variables",
    )
    create_headers: ClassVar[Mapping[str, str]] = {"x-oss-forbid-overwrite": "true"}  # OSS answers 501 to If-None-Match

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
        return f"oss://{bucket_and_root(self.bucket, self.root)}"

    @classmethod
    def build(cls, bucket: str, root: str, env: Mapping[str, str], config: Mapping[str, str]) -> Self:
        def pick(key: str, variable: str) -> str:
            return config.get(key, "") if config else env.get(variable, "")

        bucket = bucket or pick("ossBucket", "OSS_BUCKET")
        region = pick("ossRegion", "OSS_REGION").removeprefix("oss-")
        endpoint = pick("ossEndpoint", "OSS_ENDPOINT") or (f"oss-{region}.aliyuncs.com" if region else "")
        if not bucket or not endpoint:
            missing = "OSS_BUCKET" if not bucket else "OSS_ENDPOINT or OSS_REGION"
            raise Misconfigured(f"the OSS settings are incomplete: set {missing} (or its key in the config file)")
        full = endpoint_url(endpoint, "OSS_ENDPOINT", plain=False) or ""
        region = region or _region_of(urlsplit(full).hostname or "")
        return cls(
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
            sts_endpoint=endpoint_url(
                env.get("ALIBABA_CLOUD_STS_ENDPOINT", "sts.aliyuncs.com"), "ALIBABA_CLOUD_STS_ENDPOINT", plain=False
            )
            or "",
        )

    def client(self, patience: Patience, headers: Mapping[str, str]) -> S3Store:
        # OSS serves its S3 protocol on virtual hosts only.
        config: S3Config = {
            "endpoint": with_bucket_host(self.endpoint, self.bucket),
            "virtual_hosted_style_request": True,
            "region": self.region or "us-east-1",
        }
        allow_http = self.endpoint.startswith("http://")
        return S3Store(
            self.bucket,
            prefix=self.root or None,
            config=config,
            client_options=patience.client_options(allow_http=allow_http, headers=headers),
            retry_config=patience.retry_options(),
            credential_provider=self._credentials(),
        )

    def _credentials(self) -> Callable[[], S3Credential]:
        """Static keys, or temporary ones from Aliyun's STS for the OIDC token of the pod."""
        if self.access_key_id and self.access_key_secret:
            static: S3Credential = {
                "access_key_id": self.access_key_id,
                "secret_access_key": self.access_key_secret,
                "token": self.security_token,
                "expires_at": None,
            }
            return lambda: static
        if self.role_arn and self.oidc_provider_arn and self.oidc_token_file:
            return lambda: assume_role_with_oidc(self)
        raise Misconfigured(
            "no OSS credentials given: set OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET, or ALIBABA_CLOUD_ROLE_ARN, "
            "ALIBABA_CLOUD_OIDC_PROVIDER_ARN and ALIBABA_CLOUD_OIDC_TOKEN_FILE (RRSA)"
        )


def _region_of(host: str) -> str:
    """The region in an endpoint such as oss-cn-beijing-internal.aliyuncs.com or s3.oss-cn-beijing.aliyuncs.com."""
    region = host.removeprefix("s3.").split(".")[0].removeprefix("oss-").removesuffix("-internal")
    if region in ("accelerate", "accelerate-overseas"):
        raise Misconfigured(f"the OSS endpoint {host} belongs to no region: set OSS_REGION to that of the bucket")
    return region


def assume_role_with_oidc(settings: OssSettings) -> S3Credential:
    """One call to Aliyun's STS. The token file is read each time because the kubelet rotates it."""
    token_file = settings.oidc_token_file or ""
    try:
        token = Path(token_file).read_text().strip()
    except OSError as error:
        raise Misconfigured(f"ALIBABA_CLOUD_OIDC_TOKEN_FILE {token_file}: {error.strerror}") from error
    form = {
        "Action": "AssumeRoleWithOIDC",
        "Version": "2015-04-01",
        "Format": "JSON",
        "Timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "RoleArn": settings.role_arn,
        "OIDCProviderArn": settings.oidc_provider_arn,
        "OIDCToken": token,
        "RoleSessionName": "ray-history",
    }
    request = Request(settings.sts_endpoint, data=urlencode(form).encode(), method="POST")  # noqa: S310
    try:
        with urlopen(request, timeout=10) as response:  # noqa: S310 - http or https, checked by the settings
            answer = json.load(response)["Credentials"]
    except HTTPError as error:
        reason = error.read(500).decode(errors="replace")
        raise Denied(f"Aliyun STS refused ALIBABA_CLOUD_ROLE_ARN {settings.role_arn}: {reason}") from error
    except (URLError, TimeoutError) as error:
        raise Unreachable(f"Aliyun STS at {settings.sts_endpoint} does not answer: {error}") from error
    except (ValueError, KeyError) as error:
        raise Unreachable(f"Aliyun STS at {settings.sts_endpoint} answered without credentials") from error
    return {
        "access_key_id": answer["AccessKeyId"],
        "secret_access_key": answer["AccessKeySecret"],
        "token": answer["SecurityToken"],
        # Renewed early, so that they do not expire during a long multipart upload.
        "expires_at": datetime.fromisoformat(answer["Expiration"]) - timedelta(minutes=2),
    }
