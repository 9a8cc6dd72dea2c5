"""Stand-ins for Google Cloud Storage and Alibaba Cloud OSS, for which there is no real server to install.

Both keep objects in memory and speak the XML object API over HTTP/1.1 on loopback. They authenticate requests as the
real services do, with one difference: an AWS4 signature is not recomputed, only its access key id and security token
are checked. Everything else they refuse, the real services refuse too.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from obstore.store import GCSStore, S3Store

from .object_api import Answer, Request, WriteCondition, answer
from .object_memory import ObjectError, StoredObject
from .stand_in_server import StandInServer
from .sts_stand_in import StsStandIn

if TYPE_CHECKING:
    from obstore.store import ClientConfig, GCSConfig, RetryConfig, S3CredentialProvider

READS = ("GET", "HEAD")


class GcsStandIn(StandInServer):
    """Stands in for Google Cloud Storage: bearer tokens, generations, the bucket in the path.

    With `token=None` every request is allowed. With a token, a request without one is denied (403), with a
    wrong one is not recognised (401), and `reader_token` may only read (403 on writes).
    """

    writer_token = "writer-token"
    reader_token = "reader-token"

    def __init__(self, *, buckets: Sequence[str] = ("history",), token: str | None = writer_token) -> None:
        super().__init__(buckets)
        self.token = token
        self.base_url = self._listen(self._respond)

    def store(
        self,
        bucket: str = "history",
        *,
        token: str | None = None,
        base_url: str | None = None,
        client_options: ClientConfig | None = None,
        retry_config: RetryConfig | None = None,
        **options: Any,
    ) -> GCSStore:
        """Return an obstore client of one bucket; `base_url` may be a proxy of this server."""
        # Never skip_signature: obstore 0.12 minds it for reads only, and a write would ask 169.254.169.254 for a token.
        access: GCSConfig = {
            "base_url": base_url or self.base_url,
            "bearer_token": token or self.token or "anonymous",
        }
        return GCSStore(
            bucket,
            config=access,
            client_options={"allow_http": True, **(client_options or {})},
            retry_config=retry_config,
            **options,
        )

    def _respond(self, request: Request) -> Answer:
        self._authorize(request)
        name, _, key = request.path.removeprefix("/").partition("/")
        return answer(request, self._bucket(unquote(name)), unquote(key), self._write_condition(request))

    def _authorize(self, request: Request) -> None:
        if self.token is None:
            return
        given = request.headers.get("authorization")
        if given is None:
            raise ObjectError(403, "AccessDenied", "Anonymous caller does not have access to the bucket.")
        if given not in (f"Bearer {self.token}", f"Bearer {self.reader_token}"):
            raise ObjectError(401, "AuthenticationRequired", "Authentication required.")
        if given == f"Bearer {self.reader_token}" and request.method not in READS:
            raise ObjectError(403, "AccessDenied", "Caller does not have storage.objects.create access.")

    def _write_condition(self, request: Request) -> WriteCondition:
        wanted = request.headers.get("x-goog-if-generation-match")

        def allowed(current: StoredObject | None) -> None:
            if wanted is not None and int(wanted) != (current.generation if current else 0):
                raise ObjectError(412, "PreconditionFailed", "The generation of the object differs.")

        return allowed


class OssStandIn(StandInServer):
    """Stands in for Alibaba Cloud OSS behind its S3-compatible API, and for the STS that issues its keys.

    The bucket is the host, never the path:

    * `bucket_endpoint` is the address of the first bucket, as `https://<bucket>.oss-<region>.aliyuncs.com` is.
    * `service_endpoint` is the address of the service, as `https://oss-<region>.aliyuncs.com` is. A path-style
      request there is refused (403 SecondLevelDomainForbidden); one whose Host begins with a bucket is served.
      It also works as an HTTP proxy, so a client can use the real host names without DNS.
    * `sts_endpoint` answers AssumeRoleWithOIDC; `sts.calls` counts the calls.

    The static `access_key` needs no security token. Keys from STS need theirs, and expire after
    `sts.credential_seconds` (set it before the call that should get short-lived keys).

    A put with `If-None-Match` or `If-Match` is answered 501 NotImplemented, which is what users report of the
    real OSS (github.com/tobi/walgit/issues/67); `x-oss-forbid-overwrite: true` is its way to create only.
    """

    access_key = "oss-access-key"
    secret_key = "oss-secret"
    region = "cn-hangzhou"
    pod_oidc_token = "pod-oidc-token"
    role_arn = "acs:ram::1234567890:role/history"
    oidc_provider_arn = "acs:ram::1234567890:oidc-provider/ack-rrsa"

    def __init__(
        self,
        *,
        buckets: Sequence[str] = ("history",),
        oidc_token: str = pod_oidc_token,
        credential_seconds: float = 3600,
    ) -> None:
        super().__init__(buckets)
        self.sts = StsStandIn(
            role_arn=self.role_arn,
            provider_arn=self.oidc_provider_arn,
            oidc_token=oidc_token,
            credential_seconds=credential_seconds,
        )
        self.bucket_endpoint = self._listen(functools.partial(self._respond_bucket, buckets[0]))
        self.service_endpoint = self.sts_endpoint = self._listen(self._respond_service)

    def store(
        self,
        bucket: str = "history",
        *,
        access_key: str = access_key,
        secret_key: str = secret_key,
        endpoint: str | None = None,
        credential_provider: S3CredentialProvider | None = None,
        client_options: ClientConfig | None = None,
        retry_config: RetryConfig | None = None,
        **options: Any,
    ) -> S3Store:
        """Return an obstore client of the first bucket, with the static key or with a credential provider."""
        keys: dict[str, Any] = {"access_key_id": access_key, "secret_access_key": secret_key}
        return S3Store(
            bucket,
            endpoint=endpoint or self.bucket_endpoint,
            region=self.region,
            **(keys if credential_provider is None else {}),
            **{"virtual_hosted_style_request": True, **options},
            credential_provider=credential_provider,
            client_options={"allow_http": True, **(client_options or {})},
            retry_config=retry_config,
        )

    def _respond_bucket(self, name: str, request: Request) -> Answer:
        self._authorize(request)
        # The path is the key after its first slash, so that `//a` is the key `/a`.
        key = unquote(request.path.removeprefix("/"))
        return answer(request, self._bucket(name), key, self._write_condition(request))

    def _respond_service(self, request: Request) -> Answer:
        bucket = _bucket_of_host(request.host)
        if bucket is not None:
            return self._respond_bucket(bucket, request)
        form = {**request.query, **dict(parse_qsl(request.body.decode(errors="replace")))}
        if "Action" in form:
            status, document = self.sts.answer(form)
            return Answer(status, json.dumps(document).encode(), {"Content-Type": "application/json"})
        must = "The bucket you are attempting to access must be addressed using OSS third level domain."
        raise ObjectError(403, "SecondLevelDomainForbidden", must)

    def _authorize(self, request: Request) -> None:
        given = re.match(r"AWS4-HMAC-SHA256 Credential=([^/,]+)/", request.headers.get("authorization", ""))
        if given is None:
            raise ObjectError(403, "AccessDenied", "You have no right to access this object because of bucket acl.")
        access_key = given.group(1)
        if access_key == self.access_key:
            return
        keys = self.sts.issued.get(access_key)
        if keys is None:
            raise ObjectError(403, "InvalidAccessKeyId", "The OSS Access Key Id you provided does not exist.")
        if request.headers.get("x-amz-security-token") != keys.security_token:
            raise ObjectError(403, "InvalidSecurityToken", "The security token you provided is invalid.")
        if datetime.now(UTC) >= keys.ends:
            raise ObjectError(403, "SecurityTokenExpired", "The security token you provided has expired.")

    def _write_condition(self, request: Request) -> WriteCondition:
        if request.method == "PUT" and {"if-none-match", "if-match"} & request.headers.keys():
            raise ObjectError(
                501, "NotImplemented", "A header you provided implies functionality that is not implemented."
            )
        create_only = request.headers.get("x-oss-forbid-overwrite") == "true"

        def allowed(current: StoredObject | None) -> None:
            if create_only and current is not None:
                raise ObjectError(
                    409, "FileAlreadyExists", "The object you specified already exists and can not be overwritten."
                )

        return allowed


def _bucket_of_host(host: str) -> str | None:
    """Return the bucket a host name begins with, or None for the address of the service itself."""
    first, _, rest = host.split(":")[0].partition(".")
    if not rest or first.isdigit() or first.startswith(("oss-", "s3", "sts")):
        return None
    return first
