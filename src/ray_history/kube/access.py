"""Where an API server is, and how to be known to it.

Credentials may change while we run: Kubernetes renews the token of a pod every hour, exec plugins give tokens of
minutes. They are looked up again when they are a minute old, and at once when the API server answers 401.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .errors import Misconfigured

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_FRESH_FOR = 60.0


@dataclass(frozen=True, slots=True)
class Identity:
    """Who we are for the next request."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = None
    expires: float | None = None
    """Unix seconds."""


@dataclass(eq=False)
class Access:
    """One API server, and our identity there."""

    server: str
    """Its address, without a slash at the end."""
    look_up: Callable[[], Awaitable[Identity]]
    name: str = "in-cluster"
    """For people."""
    tls_name: str | None = None
    """The name in its certificate, if not that of its address."""
    proxy: str | None = None
    _identity: Identity | None = field(default=None, repr=False)
    _looked_up: float = field(default=float("-inf"), repr=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def identity(self) -> Identity:
        async with self._lock:
            age = time.monotonic() - self._looked_up
            if self._identity is None or age > _FRESH_FOR or _expired(self._identity):
                self._identity = await self.look_up()
                self._looked_up = time.monotonic()
            return self._identity

    def forget(self, identity: Identity) -> None:
        """It was not accepted: the next request looks again."""
        if self._identity is identity:
            self._identity = None


def _expired(identity: Identity) -> bool:
    return identity.expires is not None and identity.expires - time.time() < 10


def is_in_cluster(environ: Mapping[str, str] = os.environ) -> bool:
    return bool(environ.get("KUBERNETES_SERVICE_HOST"))


def in_cluster(environ: Mapping[str, str] = os.environ, account: Path = SERVICE_ACCOUNT) -> Access:
    """The API server of the cluster that this pod runs in, with the pod's service account."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise Misconfigured("this is no pod of Kubernetes (KUBERNETES_SERVICE_HOST is not set); use --kubeconfigs FILE")
    context = tls_context(account / "ca.crt")

    async def look_up() -> Identity:
        return Identity({"Authorization": f"Bearer {read_token(account / 'token')}"}, context)

    return Access(f"https://{f'[{host}]' if ':' in host else host}:{port}", look_up)


def read_token(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"the token file {file} cannot be read: {error}") from None
    return usable_token(token, f"the token file {file}")


def usable_token(token: str, source: str) -> str:
    """A token that may stand in a header: a line break would end it."""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise Misconfigured(f"{source} holds no token")
    return token


def tls_context(authority: Path | str | None, *, verify: bool = True) -> ssl.SSLContext:
    """How to check the API server's certificate: by a file, PEM text, or what the machine trusts."""
    try:
        match authority:
            case Path():
                context = ssl.create_default_context(cafile=str(authority))
            case _:
                context = ssl.create_default_context(cadata=authority)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise Misconfigured(f"the certificate authority of the API server cannot be read: {error}") from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
