"""The ways to authenticate: none, tokens from a file, headers from a proxy. Kubernetes has a module of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ray_history.server.http.responses import ApiError

from .credentials import Credentials, TrustedPeers, is_token
from .rules import Rule, RulesFile
from .viewer import EVERYBODY, Viewer


class NotAuthenticated(ApiError):
    """A request without credentials (401), or with credentials that are not accepted (403).

    A Ray cluster with tokens uses the same statuses: Ray's command line and frontend distinguish a missing token from a
    wrong one by them.
    """

    def __init__(self, message: str, *, has_credentials: bool) -> None:
        super().__init__(403 if has_credentials else 401, message)
        self.has_credentials = has_credentials


@dataclass(frozen=True, slots=True)
class Tokens:
    """What the sign-in page says about tokens."""

    wanted: str
    """Which token to paste."""
    source: str
    """Where to get one."""
    command: str = ""
    """The command that creates one."""
    shows: str = ""
    """What becomes visible with it."""


class AuthBackend(Protocol):
    """A way to authenticate requests."""

    @property
    def peers(self) -> TrustedPeers:
        """The proxies that are trusted to report the address of the client."""

    @property
    def tokens(self) -> Tokens | None:
        """What people sign in with; None without sign-in."""

    async def authenticate(self, credentials: Credentials) -> Viewer:
        """The viewer; raises NotAuthenticated, or another refusal if the viewer cannot be determined now."""

    async def close(self) -> None:
        """Close connections."""


def required_token(credentials: Credentials) -> str:
    if credentials.token is None:
        raise NotAuthenticated(
            "sign in first: send `Authorization: Bearer TOKEN`, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN for Ray's "
            "commands, or open /login in a browser",
            has_credentials=False,
        )
    if not is_token(credentials.token):
        raise NotAuthenticated(f"{REJECTED}it is too long or contains invalid characters", has_credentials=True)
    return credentials.token


REJECTED = "this token is not accepted: "
NOT_ACCEPTED = f"{REJECTED}it is unknown, revoked or expired"


@dataclass(frozen=True)
class NoAuth:
    """`none`: everyone sees everything."""

    peers: TrustedPeers = TrustedPeers()  # noqa: RUF009  # frozen
    tokens = None

    async def authenticate(self, credentials: Credentials) -> Viewer:  # noqa: ARG002
        return EVERYBODY

    async def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class FileTokens:
    """`token`: tokens from a file, each with a name and namespaces."""

    file: RulesFile
    peers: TrustedPeers
    tokens = Tokens(
        "Paste the token that you were given for this server.",
        "The operator of this server issues tokens and decides which namespaces each may see.",
        shows="You will see the namespaces that your token was given for.",
    )

    async def authenticate(self, credentials: Credentials) -> Viewer:
        rule = self.file.current().by_token(required_token(credentials))
        if rule is None:
            raise NotAuthenticated(NOT_ACCEPTED, has_credentials=True)
        return _by_rules(rule.name, (rule,))

    async def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class ProxyHeader:
    """`header`: a proxy authenticates people and sends their name and groups in headers."""

    file: RulesFile
    peers: TrustedPeers
    name_header: str
    groups_header: str
    tokens = None

    async def authenticate(self, credentials: Credentials) -> Viewer:
        names = credentials.values(self.name_header)
        if not credentials.through_trusted:
            raise NotAuthenticated(
                "sign in through the proxy in front of this server: only requests from a trusted proxy are accepted",
                has_credentials=False,
            )
        if len(names) != 1 or not names[0].strip():
            # Of two headers one may be the client's own, which a careless proxy let through.
            raise NotAuthenticated(
                f"the proxy must send the user's name in exactly one {self.name_header} header", has_credentials=False
            )
        name = names[0].strip()[:256]
        groups = [group.strip() for value in credentials.values(self.groups_header) for group in value.split(",")]
        return _by_rules(name, self.file.current().of(name, groups))

    async def close(self) -> None:
        """Nothing is open."""


def _by_rules(name: str, rules: tuple[Rule, ...]) -> Viewer:
    async def can_see(namespace: str, cluster: str) -> bool:
        return any(rule.allows(namespace, cluster) for rule in rules)

    return Viewer(name, can_see)
