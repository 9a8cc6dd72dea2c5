"""The settings of authentication, and the backend that they select."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ray_history.kube import KubeError, Kubernetes
from ray_history.server.settings import AuthSettings

from .backends import AuthBackend, FileTokens, NoAuth, ProxyHeader
from .credentials import TrustedPeers
from .kubernetes import KubernetesTokens, parse_access
from .origin import AllowedHosts, is_local
from .rules import InvalidRules, RulesFile

_LOOPBACK = "127.0.0.1,::1"
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")


class InvalidAuth(ValueError):
    """Settings that cannot be used; the message says what to change."""


def check_exposure(settings: AuthSettings, host: str) -> None:
    """Refuse to listen beyond the loopback interface unless the operator chose how to authenticate."""
    if settings.auth is None and not is_local(host):
        raise InvalidAuth(
            f"refusing to listen on {host} without authentication: set --auth token, kubernetes or header, "
            "or --auth none to show every session to everyone"
        )


def allowed_hosts(settings: AuthSettings, host: str) -> AllowedHosts:
    """Without authentication, only this machine protects a server on the loopback interface."""
    is_protected = settings.auth not in (None, "none") or not is_local(host)
    return AllowedHosts() if is_protected else AllowedHosts.local(settings.allowed_host)


def make_backend(settings: AuthSettings, api_server: Callable[[], Kubernetes]) -> AuthBackend:
    """The backend; `api_server` is only called if the backend needs it."""
    try:
        peers = TrustedPeers.parse(settings.auth_trusted_peers or _LOOPBACK)
    except ValueError as error:
        raise InvalidAuth(f"--auth-trusted-peers: expected networks such as 10.0.0.0/8: {error}") from None
    match settings.auth:
        case None | "none":
            return NoAuth(peers)
        case "token":
            return FileTokens(_file(settings, "tokens"), peers)
        case "header":
            return _header(settings, peers)
        case "kubernetes":
            return _kubernetes(settings, peers, api_server)
    raise InvalidAuth(f"unknown --auth {settings.auth}: expected none, token, kubernetes or header")


def _header(settings: AuthSettings, peers: TrustedPeers) -> AuthBackend:
    if not settings.auth_trusted_peers:
        raise InvalidAuth("--auth header needs --auth-trusted-peers: the addresses of the proxy")
    for name in (settings.auth_header, settings.auth_groups_header):
        if not _HEADER.fullmatch(name):
            raise InvalidAuth(f"{name!r} is not a valid header name")
    return ProxyHeader(_file(settings, "rules"), peers, settings.auth_header, settings.auth_groups_header)


def _kubernetes(settings: AuthSettings, peers: TrustedPeers, api_server: Callable[[], Kubernetes]) -> AuthBackend:
    try:
        return KubernetesTokens(
            api_server(),
            peers,
            parse_access(settings.auth_access),
            audiences=tuple(part.strip() for part in settings.auth_audience.split(",") if part.strip()),
            each_cluster=settings.auth_scope == "cluster",
            seconds=settings.auth_cache,
        )
    except KubeError as error:
        raise InvalidAuth(f"--auth kubernetes: {error}") from None
    except ValueError as error:
        raise InvalidAuth(f"--auth-access {error}") from None


def _file(settings: AuthSettings, content: str) -> RulesFile:
    if not settings.auth_file:
        raise InvalidAuth(f"--auth {settings.auth} needs --auth-{content}-file FILE")
    try:
        return RulesFile(Path(settings.auth_file))
    except InvalidRules as error:
        raise InvalidAuth(f"--auth-{content}-file: {error}") from None
