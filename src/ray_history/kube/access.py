"""The address of an API server, and the credentials for it.

Credentials change while the server runs: Kubernetes renews the token of a pod every hour, and exec plugins issue tokens
for minutes. They are looked up again when they are a minute old, and at once when the API server answers 401.
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
_MAX_AGE = 60.0


@dataclass(frozen=True, slots=True)
class Identity:
    """The credentials for one request."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = None
    expires: float | None = None
    """Unix seconds."""


@dataclass(eq=False)
class Access:
    """One API server, with the credentials for it."""

    server: str
    """Its address without a trailing slash."""
    look_up: Callable[[], Awaitable[Identity]]
    name: str = "in-cluster"
    """Its name in messages."""
    tls_name: str | None = None
    """The name in its certificate, if it differs from that of the address."""
    proxy: str | None = None
    _identity: Identity | None = field(default=None, repr=False)
    _looked_up: float = field(default=float("-inf"), repr=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def identity(self) -> Identity:
        async with self._lock:
            age = time.monotonic() - self._looked_up
            if self._identity is None or age > _MAX_AGE or _expired(self._identity):
                self._identity = await self.look_up()
                self._looked_up = time.monotonic()
            return self._identity

    def forget(self, identity: Identity) -> None:
        """Look up credentials again for the next request, because these were not accepted."""
        if self._identity is identity:
            self._identity = None


def _expired(identity: Identity) -> bool:
    return identity.expires is not None and identity.expires - time.time() < 10


def is_in_cluster(environ: Mapping[str, str] = os.environ) -> bool:
    return bool(environ.get("KUBERNETES_SERVICE_HOST"))


def in_cluster(environ: Mapping[str, str] = os.environ, account: Path = SERVICE_ACCOUNT) -> Access:
    """The API server of the cluster in which this pod runs, with the pod's service account."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise Misconfigured(
            "not running in a Kubernetes pod (KUBERNETES_SERVICE_HOST is not set); use --kubeconfigs FILE"
        )
    context = tls_context(account / "ca.crt")

    async def look_up() -> Identity:
        return Identity({"Authorization": f"Bearer {read_token(account / 'token')}"}, context)

    return Access(f"https://{f'[{host}]' if ':' in host else host}:{port}", look_up)


def read_token(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"the token file {file} cannot be read: {error}") from None
    return valid_token(token, f"the token file {file}")


def valid_token(token: str, source: str) -> str:
    """The token, if it is valid in a header: a line break would end the header."""
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise Misconfigured(f"{source} contains no valid token")
    return token


def tls_context(authority: Path | str | None, *, verify: bool = True) -> ssl.SSLContext:
    """A context that checks the API server's certificate with a file, PEM text, or the authorities of this machine."""
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
