"""The credentials of a request: a token in any place where Ray's clients put it, and the address of the client."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from starlette.requests import cookie_parser
from starlette.types import Scope

COOKIE = "ray-history-token"
"""Not Ray's name: cookies ignore ports, so a Ray Dashboard on the same host would receive and overwrite this one."""
RAYS_COOKIE = "ray-authentication-token"
LONGEST_TOKEN = 8192

Headers: TypeAlias = list[tuple[bytes, bytes]]

_CARRIERS = (b"authorization", b"x-ray-authorization")
_TOKEN_COOKIES = (COOKIE, RAYS_COOKIE)
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750; every such token is valid in a header and in a cookie."""


def is_token(text: str) -> bool:
    return len(text) <= LONGEST_TOKEN and _TOKEN.fullmatch(text) is not None


def token_hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request carries about its sender."""

    token: str | None = field(repr=False)
    peer: str
    """The address of the client, according to trusted proxies."""
    through_trusted: bool
    """Whether the connection itself comes from a trusted proxy."""
    headers: Headers = field(repr=False)

    def values(self, name: str) -> list[str]:
        wanted = name.lower().encode("latin-1")
        return [value.decode("latin-1") for key, value in self.headers if key == wanted]


def bearer(headers: Headers) -> str | None:
    """The token from the headers and cookies that Ray reads, in Ray's order; our own cookie precedes Ray's."""
    for carrier in _CARRIERS:
        for name, value in headers:
            scheme, _, token = value.decode("latin-1").strip().partition(" ")
            if name == carrier and scheme.lower() == "bearer":
                return token.strip()
    cookies = _cookies(headers)
    return cookies.get(COOKIE) or cookies.get(RAYS_COOKIE) or None


def without_tokens(headers: Headers) -> Headers:
    """The headers without any token, so that nothing behind the guard can forward one."""
    kept: Headers = []
    for name, value in headers:
        if name == b"cookie":
            # As text, of which more is white space than of bytes, because that is how cookies are read.
            pairs = [
                pair
                for pair in value.split(b";")
                if pair.decode("latin-1").partition("=")[0].strip() not in _TOKEN_COOKIES
            ]
            kept += [(name, b";".join(pairs))] if pairs else []
        elif name not in _CARRIERS:
            kept.append((name, value))
    return kept


def _cookies(headers: Headers) -> dict[str, str]:
    return cookie_parser("; ".join(value.decode("latin-1") for name, value in headers if name == b"cookie"))


Network: TypeAlias = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class TrustedPeers:
    """The proxies whose forwarding headers are trusted."""

    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> TrustedPeers:
        """Parse addresses and networks, separated by commas; raises ValueError."""
        return cls(tuple(ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip()))

    def trusts(self, address: str) -> bool:
        try:
            parsed = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped:
            parsed = parsed.ipv4_mapped
        return any(parsed.version == network.version and parsed in network for network in self.networks)

    def credentials(self, scope: Scope) -> Credentials:
        """The credentials of a request. A chain of trusted proxies is followed to the first address beyond them."""
        headers: Headers = list(scope["headers"])
        peer = direct = str(scope["client"][0]) if scope.get("client") else "unknown"
        chain = [part.strip() for name, value in headers if name == b"x-forwarded-for" for part in _parts(value)]
        while chain and self.trusts(peer):
            peer = _without_port(chain.pop()[:64])
        return Credentials(bearer(headers), peer, self.trusts(direct), headers)


def _without_port(address: str) -> str:
    """Some proxies send `192.0.2.1:4711` or `[2001:db8::1]:4711`, by which every connection would be another peer."""
    found = re.fullmatch(r"\[([^\]]*)\](?::\d+)?|([^:]+):\d+", address)
    return (found[1] or found[2]) if found else address


def _parts(value: bytes) -> list[str]:
    return value.decode("latin-1").split(",")
