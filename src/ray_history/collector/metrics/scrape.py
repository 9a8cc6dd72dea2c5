"""One request of a Prometheus endpoint on this node."""

from __future__ import annotations

import http.client
import io
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

TIMEOUT = 10.0
"""Seconds for a whole scrape, as in Prometheus: the agent of a busy head may need four."""
MAX_BYTES = 32 << 20
"""Of a page; the rest is left out. The head of a busy cluster shows 1.5 MB."""
_PART = 256 << 10
_SESSION = re.compile(rb'SessionName="([^"]*)"')


class ScrapeFailed(Exception):
    """The endpoint did not answer with samples."""


@dataclass(slots=True)
class Page:
    """What an endpoint shows."""

    content: bytearray = field(default_factory=bytearray)
    is_cut: bool = False
    left_out: int = 0
    """Lines for which there was no room."""

    def add(self, part: bytes) -> None:
        """Add a part, as far as there is room for it."""
        if not self.is_cut:
            self.content += part
            if len(self.content) <= MAX_BYTES:
                return
            self.is_cut = True
            end = self.content.rfind(b"\n", 0, MAX_BYTES) + 1
            part = bytes(self.content[end:])
            del self.content[end:]
        self.left_out += part.count(b"\n")

    def lines(self) -> Iterator[str]:
        """Line by line, because all lines together take several times as much memory."""
        for line in io.BytesIO(self.content):
            yield line.rstrip(b"\r\n").decode(errors="replace")


def scrape(port: int, *, host: str = "127.0.0.1", timeout: float = TIMEOUT) -> Page:
    """The endpoint's page."""
    deadline = time.monotonic() + timeout
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    page = Page()
    try:
        connection.request("GET", "/metrics", headers={"Accept": "text/plain; version=0.0.4"})
        response = connection.getresponse()
        if response.status != 200:
            raise ScrapeFailed(f"status {response.status}")
        while part := response.read1(_PART):
            page.add(part)
            if time.monotonic() > deadline:
                if page.is_cut:
                    return page
                raise ScrapeFailed(f"not whole after {timeout:g} s")
        if response.length:  # the connection was closed early
            raise ScrapeFailed(f"{response.length} bytes are missing")
    except (OSError, UnicodeError, http.client.HTTPException) as error:  # names of hosts raise a UnicodeError
        raise ScrapeFailed(str(error) or type(error).__name__) from error
    finally:
        connection.close()
    return page


def check_session(page: bytearray, session: str) -> None:
    """Raise `ScrapeFailed` if another cluster on this machine has the port: those of a head are fixed."""
    found = _SESSION.search(page)
    if found is not None and found[1] != session.encode():
        raise ScrapeFailed(f"it belongs to {found[1].decode(errors='replace')}")
