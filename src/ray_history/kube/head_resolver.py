"""The address of the head of a running cluster, and the token that its dashboard requires.

The address comes from the RayCluster object alone. The token is the cluster's own, from the Secret that KubeRay made,
or one that the operator configured for clusters that require Kubernetes tokens. The server's own token for the API
server is never sent to a head: the owner of the cluster could use it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from .access import read_token, valid_token
from .client import HeadEndpoint, Kubernetes, resource_path
from .errors import Denied, KubeError, Misconfigured, NotFound
from .ray_clusters import RayCluster

TOKEN_HEADER = "x-ray-authorization"  # noqa: S105 (Ray takes it beside `Authorization`, which API servers consume)
_SECRET_KEY = "auth_token"  # noqa: S105
_TOKEN_MAX_AGE = 30.0
_RENEWAL_TIMEOUT = 2.0
"""How long a request waits for the API server while there is a token that may still be right."""


class HeadUnavailable(KubeError):
    """The head cannot be contacted; the message says what to do."""


def in_cluster_address(cluster: RayCluster) -> str:
    return f"http://{cluster.head_service}.{cluster.namespace}.svc:{cluster.port}"


@dataclass(eq=False)
class HeadResolver:
    """Finds the endpoints of heads."""

    through_api_server: bool = False
    read_secrets: bool = False
    """Whether to read the Secrets of clusters that require a token."""
    token_file: Path | None = None
    """A token for clusters that require a Kubernetes token."""
    address: Callable[[RayCluster], str] = in_cluster_address
    _tokens: dict[str, tuple[float, str]] = field(default_factory=dict, repr=False)

    async def endpoint(self, kubernetes: Kubernetes, cluster: RayCluster) -> HeadEndpoint:
        if not cluster.head_service:
            raise HeadUnavailable(f"the head of {cluster.namespace}/{cluster.name} is not ready")
        if self.through_api_server:
            endpoint = await kubernetes.service_proxy(cluster.namespace, cluster.head_service, "dashboard")
        else:
            endpoint = HeadEndpoint(self.address(cluster))
        token = await self._token(kubernetes, cluster)
        if not token:
            return endpoint
        return replace(endpoint, headers={**endpoint.headers, TOKEN_HEADER: f"Bearer {token}"})

    def forget_token(self, cluster: RayCluster) -> bool:
        """Forget a token that the head refused; True if there was one that may have been renewed."""
        return self._tokens.pop(cluster.uid, None) is not None

    async def _token(self, kubernetes: Kubernetes, cluster: RayCluster) -> str | None:
        if not cluster.authentication:
            return None
        if cluster.authentication == "kubernetes":
            return self._configured_token(cluster)
        if not self.read_secrets:
            raise HeadUnavailable(
                f"{cluster.namespace}/{cluster.name} requires a token; --use-auth-token-mode reads it from its Secret"
            )
        read_at, token = self._tokens.get(cluster.uid, (float("-inf"), ""))
        if time.monotonic() - read_at <= _TOKEN_MAX_AGE:
            return token
        if token:
            return await self._renewed(kubernetes, cluster, token)
        token = await self._secret_token(kubernetes, cluster)
        self._tokens[cluster.uid] = time.monotonic(), token
        return token

    async def _renewed(self, kubernetes: Kubernetes, cluster: RayCluster, last: str) -> str:
        """The token as it is now, or the last one if the API server does not answer."""
        self._tokens[cluster.uid] = time.monotonic(), last  # other requests do not wait
        try:
            token = await asyncio.wait_for(self._secret_token(kubernetes, cluster), _RENEWAL_TIMEOUT)
        except HeadUnavailable:
            self.forget_token(cluster)
            raise
        except (TimeoutError, KubeError):
            return last
        self._tokens[cluster.uid] = time.monotonic(), token
        return token

    def _configured_token(self, cluster: RayCluster) -> str:
        if self.token_file is None:
            raise HeadUnavailable(
                f"{cluster.namespace}/{cluster.name} requires a Kubernetes token; provide one with --ray-token-file"
            )
        try:
            return read_token(self.token_file)
        except Misconfigured as error:
            raise HeadUnavailable(str(error)) from None

    async def _secret_token(self, kubernetes: Kubernetes, cluster: RayCluster) -> str:
        name = f"Secret {cluster.namespace}/{cluster.secret}"
        try:
            secret = await kubernetes.get(resource_path("v1", "secrets", cluster.namespace, cluster.secret))
            encoded = (secret.get("data") or {}).get(_SECRET_KEY, "")
            return valid_token(base64.b64decode(encoded, validate=True).decode("ascii").strip(), name)
        except (Denied, NotFound, Misconfigured) as error:
            raise HeadUnavailable(f"the token of {cluster.namespace}/{cluster.name} cannot be read: {error}") from None
        except (binascii.Error, UnicodeDecodeError, AttributeError, TypeError):
            raise HeadUnavailable(f"{name} contains no token under {_SECRET_KEY}") from None
