"""What the operator chose about who may see what, and the mode that is made of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

from ray_history.kube import Access, KubeError, Kubernetes
from ray_history.server.settings import AuthSettings

from .backends import FileTokens, Mode, Nobody, ProxyHeader
from .by_kubernetes import ByKubernetes, parse_access
from .credentials import Peers
from .rules import RulesFile, WrongRules

_LOOPBACK = "127.0.0.1,::1"
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")


class WrongAuth(ValueError):
    """A choice that cannot be carried out, and what to change."""


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def checked(settings: AuthSettings, host: str) -> AuthSettings:
    """The choice, made for those who listen on loopback only; nobody else gets an open server without saying so."""
    if settings.auth is not None or is_loopback(host):
        return settings
    raise WrongAuth(
        f"whoever reaches {host} would see every session: choose who may with --auth token, kubernetes or header, "
        "or say --auth none"
    )


def make_mode(settings: AuthSettings, api_server: Callable[[], Access]) -> Mode:
    """The mode; the API server is only looked for when it is to be asked."""
    try:
        peers = Peers.parse(settings.auth_trusted_peers or _LOOPBACK)
    except ValueError as error:
        raise WrongAuth(f"--auth-trusted-peers wants addresses and networks such as 10.0.0.0/8: {error}") from None
    match settings.auth:
        case None | "none":
            return Nobody(peers)
        case "token":
            return FileTokens(_file(settings, "tokens"), peers)
        case "header":
            return _header(settings, peers)
        case "kubernetes":
            return _kubernetes(settings, peers, api_server)
    raise WrongAuth(f"--auth {settings.auth} is not known: use none, token, kubernetes or header")


def _header(settings: AuthSettings, peers: Peers) -> Mode:
    if not settings.auth_trusted_peers:
        raise WrongAuth("--auth header needs --auth-trusted-peers: the addresses of the proxy whose word is taken")
    for name in (settings.auth_header, settings.auth_groups_header):
        if not _HEADER.fullmatch(name):
            raise WrongAuth(f"{name!r} is no name of a header")
    return ProxyHeader(_file(settings, "rules"), peers, settings.auth_header, settings.auth_groups_header)


def _kubernetes(settings: AuthSettings, peers: Peers, api_server: Callable[[], Access]) -> Mode:
    try:
        return ByKubernetes(
            Kubernetes(api_server()),
            peers,
            parse_access(settings.auth_access),
            audiences=tuple(part.strip() for part in settings.auth_audience.split(",") if part.strip()),
            each_cluster=settings.auth_scope == "cluster",
            seconds=settings.auth_cache,
        )
    except KubeError as error:
        raise WrongAuth(f"--auth kubernetes: {error}") from None
    except ValueError as error:
        raise WrongAuth(f"--auth-access {error}") from None


def _file(settings: AuthSettings, what: str) -> RulesFile:
    if not settings.auth_file:
        raise WrongAuth(f"--auth {settings.auth} needs --auth-{what}-file FILE")
    try:
        return RulesFile(Path(settings.auth_file))
    except WrongRules as error:
        raise WrongAuth(f"--auth-{what}-file: {error}") from None
