"""What would make a server useless is reported before it starts, with the option that helps."""

from __future__ import annotations

import errno
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

import click

_EARLIEST, _LATEST = datetime(2025, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


def check_clock() -> None:
    """Refuse a clock that was never set: certificates, tokens, signed requests and session states depend on it."""
    now = time.time()
    if not _EARLIEST.timestamp() <= now < _LATEST.timestamp():
        shown = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now))
        raise click.ClickException(f"the clock of this machine says {shown} UTC: set it, for example with NTP")


def check_cache(directory: Path) -> None:
    from ray_history.index.cache import Cache, CacheUnusable

    try:
        Cache(directory, 0).check()
    except CacheUnusable as error:
        raise click.ClickException(str(error)) from None


def check_address(host: str, port: int) -> None:
    """Refuse an address that cannot be listened on."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise click.ClickException(f"--host {host}: {error.strerror or error}") from None
    failures = [failure for family, _, _, _, address in found if (failure := _failure(family, address))]
    for failure in failures:
        # Of `localhost`, the IPv6 address may not exist.
        if failure.errno != errno.EADDRNOTAVAIL or len(failures) == len(found):
            raise click.ClickException(_explanation(failure, host, port))


def _failure(family: int, address: object) -> OSError | None:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)  # type: ignore[arg-type]
    except OSError as error:
        return error
    return None


def _explanation(failure: OSError, host: str, port: int) -> str:
    match failure.errno:
        case errno.EADDRINUSE:
            return f"port {port} of {host} is in use: choose another one with --port"
        case errno.EACCES:
            return f"port {port} needs privileges: choose one above 1023 with --port"
        case errno.EADDRNOTAVAIL:
            return f"{host} is not an address of this machine: check --host"
    return f"cannot listen on {host}, port {port}: {failure.strerror}"
