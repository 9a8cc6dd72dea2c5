"""Identities that the object store client cannot find by itself.

It knows static keys, web identity (IRSA), container and instance roles for S3, Application Default Credentials for
Google, and workload identity for Azure. Added here: AWS profiles, Azure's full default chain, and Aliyun's RRSA.
"""

from __future__ import annotations

import configparser
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from ..errors import Denied, Misconfigured, Unreachable
from ..settings import AzureSettings, OssSettings, S3Settings

if TYPE_CHECKING:
    from obstore.store import S3Credential


def s3_identity(settings: S3Settings) -> Any:
    """Credentials of a named AWS profile; None leaves the search to the client."""
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


def azure_identity(settings: AzureSettings) -> Any:
    """Azure's default credential chain when `azure-identity` is installed; None leaves it to the client."""
    if settings.account_key or settings.sas:
        return None
    try:
        from obstore.auth.azure import AzureCredentialProvider
    except ImportError:
        return None
    return AzureCredentialProvider()


def oss_identity(settings: OssSettings) -> Callable[[], S3Credential]:
    """Static keys, or the temporary ones that Aliyun's STS gives for the pod's OIDC token."""
    if settings.access_key_id and settings.access_key_secret:
        static: S3Credential = {
            "access_key_id": settings.access_key_id,
            "secret_access_key": settings.access_key_secret,
            "token": settings.security_token,
            "expires_at": None,
        }
        return lambda: static
    if settings.role_arn and settings.oidc_provider_arn and settings.oidc_token_file:
        return lambda: assume_role_with_oidc(settings)
    raise Misconfigured(
        "no OSS credentials given: set OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET, or ALIBABA_CLOUD_ROLE_ARN, "
        "ALIBABA_CLOUD_OIDC_PROVIDER_ARN and ALIBABA_CLOUD_OIDC_TOKEN_FILE (RRSA)"
    )


def assume_role_with_oidc(settings: OssSettings) -> S3Credential:
    """One call to Aliyun's STS; the token file is read anew each time because the kubelet rotates it."""
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
        raise Unreachable(f"Aliyun STS at {settings.sts_endpoint} gives no answer: {error}") from error
    except (ValueError, KeyError) as error:
        raise Unreachable(f"Aliyun STS at {settings.sts_endpoint} gave an answer without credentials") from error
    return {
        "access_key_id": answer["AccessKeyId"],
        "secret_access_key": answer["AccessKeySecret"],
        "token": answer["SecurityToken"],
        # Renewed before the end, so that a long multipart upload does not run into it.
        "expires_at": datetime.fromisoformat(answer["Expiration"]) - timedelta(minutes=2),
    }
