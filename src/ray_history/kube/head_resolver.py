"""The way to the head of a running cluster, and the token that its dashboard wants.

The address comes from the RayCluster object alone. A token is the cluster's own, from the Secret that KubeRay made, or
one that the operator gave for clusters that ask for tokens of Kubernetes. Our own token for the API server is never
shown to a head: whoever runs the cluster could take it and be us.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from .access import read_token, usable_token
from .client import HeadEndpoint, Kubernetes, resource_path
from .errors import Denied, KubeError, Misconfigured, NotFound
from .ray_clusters import RayCluster

TOKEN_HEADER = "x-ray-authorization"  # noqa: S105 (Ray takes it beside `Authorization`, which API servers consume)
_SECRET_KEY = "auth_token"  # noqa: S105
_TOKEN_FRESH_FOR = 30.0


class HeadUnavailable(KubeError):
    """The head cannot be asked; the message says what would help."""


def in_cluster_address(cluster: RayCluster) -> str:
    return f"http://{cluster.head_service}.{cluster.namespace}.svc:{cluster.port}"


@dataclass(eq=False)
class HeadResolver:
    """The ways to all heads."""

    through_api_server: bool = False
    read_secrets: bool = False
    """Whether the Secrets of clusters that ask for tokens are read."""
    token_file: Path | None = None
    """A token for clusters that ask for one of Kubernetes."""
    address: Callable[[RayCluster], str] = in_cluster_address
    _tokens: dict[str, tuple[float, str]] = field(default_factory=dict, repr=False)

    async def door(self, kubernetes: Kubernetes, cluster: RayCluster) -> HeadEndpoint:
        if not cluster.head_service:
            raise HeadUnavailable(f"the head of {cluster.namespace}/{cluster.name} is not ready")
        if self.through_api_server:
            door = await kubernetes.service_proxy(cluster.namespace, cluster.head_service, "dashboard")
        else:
            door = HeadEndpoint(self.address(cluster))
        token = await self._token(kubernetes, cluster)
        return replace(door, headers={**door.headers, TOKEN_HEADER: f"Bearer {token}"}) if token else door

    def forget_token(self, cluster: RayCluster) -> bool:
        """The head refused it: whether a newer one may be found."""
        return self._tokens.pop(cluster.uid, None) is not None

    async def _token(self, kubernetes: Kubernetes, cluster: RayCluster) -> str | None:
        if not cluster.asks_for:
            return None
        if cluster.asks_for == "kubernetes":
            return self._given_token(cluster)
        if not self.read_secrets:
            raise HeadUnavailable(
                f"{cluster.namespace}/{cluster.name} asks for a token; --use-auth-token-mode reads it from its Secret"
            )
        since, token = self._tokens.get(cluster.uid, (float("-inf"), ""))
        if time.monotonic() - since > _TOKEN_FRESH_FOR:
            token = await self._secret_token(kubernetes, cluster)
            self._tokens[cluster.uid] = time.monotonic(), token
        return token

    def _given_token(self, cluster: RayCluster) -> str:
        if self.token_file is None:
            raise HeadUnavailable(
                f"{cluster.namespace}/{cluster.name} asks for a token of Kubernetes; give one with --ray-token-file"
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
            return usable_token(base64.b64decode(encoded, validate=True).decode("ascii").strip(), name)
        except (Denied, NotFound, Misconfigured) as error:
            raise HeadUnavailable(f"the token of {cluster.namespace}/{cluster.name} cannot be had: {error}") from None
        except (binascii.Error, UnicodeDecodeError, AttributeError, TypeError):
            raise HeadUnavailable(f"{name} holds no token under {_SECRET_KEY}") from None
