"""Where a request comes from: the host that it names, and the page that sent it.

A web page may have its own name point to 127.0.0.1 (DNS rebinding). For the browser, a server on this machine then
belongs to that page, which can read its answers. The name in the request gives it away.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

from starlette.types import Scope

from ray_history.server.http.responses import ApiError

_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[^:\[\]]*)(:[0-9]*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The names by which the server may be called; without `names`, by any."""

    names: frozenset[str] | None = None

    @classmethod
    def local(cls, also: str = "") -> AllowedHosts:
        """The names of this machine, and those listed; `*` is any."""
        names = {name.strip().lower() for name in also.split(",") if name.strip()}
        return cls(None if "*" in names else frozenset(names))

    def allow(self, host: str) -> bool:
        if self.names is None or not host:  # browsers always name a host
            return True
        found = _HOST.fullmatch(host)
        name = found["name"].lower().rstrip(".") if found else ""
        return name in self.names or is_local(name)


def is_local(name: str) -> bool:
    """Whether a host name can only mean the machine itself."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def check_origin(scope: Scope, hosts: AllowedHosts) -> None:
    """Refuse requests for other hosts, and web sockets of other sites' pages, which browsers do not prevent."""
    for host in values(scope, b"host"):
        if not hosts.allow(host):
            name = "".join(filter(str.isprintable, host))[:100]
            raise ApiError(
                421,
                f"without authentication, this server answers requests to this machine only, not to {name!r}: open it "
                f"as http://localhost, or add --allowed-host {name.partition(':')[0]}",
            )
    if scope["type"] == "websocket" and is_cross_site(scope):
        raise ApiError(403, "web sockets can be opened from the pages of this server only")


def is_cross_site(scope: Scope) -> bool:
    """Whether a page of another site sent the request."""
    hosts = values(scope, b"host") + values(scope, b"x-forwarded-host")
    return any(origin.partition("://")[2] not in hosts for origin in values(scope, b"origin")) or any(
        site not in ("same-origin", "none") for site in values(scope, b"sec-fetch-site")
    )


def values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]
