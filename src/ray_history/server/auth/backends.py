"""The ways to know somebody: nobody is asked, a token of a file, a proxy's word. Kubernetes has a module of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ray_history.server.http.responses import ApiError

from .credentials import Credentials, Peers, is_token
from .rules import Rule, RulesFile
from .viewer import EVERYBODY, Viewer


class NotKnown(ApiError):
    """Somebody who showed nothing (401), or something that is not accepted (403).

    The numbers are those of a Ray cluster with tokens: its command line and its frontend tell "no token" from "wrong
    token" by them.
    """

    def __init__(self, message: str, *, shown: bool) -> None:
        super().__init__(403 if shown else 401, message)
        self.shown = shown


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that people sign in with, as they are told on the page."""

    wanted: str
    """Which token to paste."""
    source: str
    """Where to get one."""
    command: str = ""
    """What makes one."""
    shows: str = ""
    """What one sees with it."""


class Mode(Protocol):
    """A way to know somebody."""

    @property
    def peers(self) -> Peers:
        """The proxies whose word about the client's address is taken."""

    @property
    def tokens(self) -> Tokens | None:
        """What people sign in with; none where nobody signs in."""

    async def known(self, shown: Credentials) -> Viewer:
        """Who it is; NotKnown, or another refusal when that cannot be found out now."""

    async def close(self) -> None:
        """Let go of what is open."""


def usable(shown: Credentials) -> str:
    """The token that was shown, if it can be one."""
    if shown.token is None:
        raise NotKnown(
            "sign in first: send `Authorization: Bearer TOKEN`, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN for Ray's "
            "commands, or open /login in a browser",
            shown=False,
        )
    if not is_token(shown.token):
        raise NotKnown(f"{REJECTED}it is too long, or has characters that no token has", shown=True)
    return shown.token


REJECTED = "this token is not accepted: "
NOT_ACCEPTED = f"{REJECTED}it is unknown, was taken back or has expired"


@dataclass(frozen=True)
class Nobody:
    """`none`: everybody sees everything."""

    peers: Peers = Peers()  # noqa: RUF009  # frozen
    tokens = None

    async def known(self, shown: Credentials) -> Viewer:  # noqa: ARG002
        return EVERYBODY

    async def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class FileTokens:
    """`token`: tokens of a file, each with a name and namespaces."""

    file: RulesFile
    peers: Peers
    tokens = Tokens(
        "Paste the token that you were given for this server.",
        "Whoever runs this server gives tokens out, and says which namespaces each may see.",
        shows="You will see the namespaces that your token was given for.",
    )

    async def known(self, shown: Credentials) -> Viewer:
        rule = self.file.current().by_token(usable(shown))
        if rule is None:
            raise NotKnown(NOT_ACCEPTED, shown=True)
        return _by_rules(rule.name, (rule,))

    async def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class ProxyHeader:
    """`header`: a proxy in front signs people in, and tells their name and groups in headers."""

    file: RulesFile
    peers: Peers
    name_header: str
    groups_header: str
    tokens = None

    async def known(self, shown: Credentials) -> Viewer:
        names = shown.values(self.name_header)
        if not shown.through_trusted:
            raise NotKnown(
                "sign in through the proxy that stands before this server; it takes nobody else's word", shown=False
            )
        if len(names) != 1 or not names[0].strip():
            # Two of them: one may be the client's own, which a careless proxy let through.
            raise NotKnown(f"the proxy must tell who this is in one {self.name_header} header", shown=False)
        name = names[0].strip()[:256]
        groups = [group.strip() for value in shown.values(self.groups_header) for group in value.split(",")]
        return _by_rules(name, self.file.current().of(name, groups))

    async def close(self) -> None:
        """Nothing is open."""


def _by_rules(name: str, rules: tuple[Rule, ...]) -> Viewer:
    async def sees(namespace: str, cluster: str) -> bool:
        return any(rule.sees(namespace, cluster) for rule in rules)

    return Viewer(name, sees)
