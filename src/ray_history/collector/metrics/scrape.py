"""One request of a Prometheus endpoint on this node."""

from __future__ import annotations

import http.client
import io
import re
import time
from collections.abc import Iterator

TIMEOUT = 10.0
"""Seconds for a whole scrape, as in Prometheus: the agent of a busy head may need four."""
MAX_BYTES = 32 << 20
"""The head of a busy cluster shows 1.5 MB."""
_PART = 256 << 10
_SESSION = re.compile(rb'SessionName="([^"]*)"')


class ScrapeFailed(Exception):
    """The endpoint did not answer with samples."""


def scrape(port: int, *, host: str = "127.0.0.1", timeout: float = TIMEOUT) -> bytes:
    """The endpoint's page."""
    deadline = time.monotonic() + timeout
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    page = bytearray()
    try:
        connection.request("GET", "/metrics", headers={"Accept": "text/plain; version=0.0.4"})
        response = connection.getresponse()
        if response.status != 200:
            raise ScrapeFailed(f"status {response.status}")
        while part := response.read1(_PART):
            page += part
            if len(page) > MAX_BYTES:
                raise ScrapeFailed(f"more than {MAX_BYTES >> 20} MiB")
            if time.monotonic() > deadline:
                raise ScrapeFailed(f"not whole after {timeout:g} s")
        if response.length:  # the connection was closed early
            raise ScrapeFailed(f"{response.length} bytes are missing")
    except (OSError, UnicodeError, http.client.HTTPException) as error:  # names of hosts raise a UnicodeError
        raise ScrapeFailed(str(error) or type(error).__name__) from error
    finally:
        connection.close()
    return bytes(page)


def check_session(page: bytes, session: str) -> None:
    """Raise `ScrapeFailed` if another cluster on this machine has the port: those of a head are fixed."""
    found = _SESSION.search(page)
    if found is not None and found[1] != session.encode():
        raise ScrapeFailed(f"it belongs to {found[1].decode(errors='replace')}")


def lines(page: bytes) -> Iterator[str]:
    """Line by line, because all lines together take several times as much memory."""
    for line in io.BytesIO(page):
        yield line.rstrip(b"\r\n").decode(errors="replace")
