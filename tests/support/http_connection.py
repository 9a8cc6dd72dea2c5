"""One side of an HTTP/1.1 connection, read message by message without changing a byte, for the fault proxy."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

BLOCK = 64 * 1024


class HungUp(Exception):
    """The other side ended the connection."""


@dataclass(frozen=True)
class Head:
    """The first line and the headers of a request or response; header names are lower case."""

    raw: bytes
    first_line: str
    headers: dict[str, str]

    @property
    def method(self) -> str:
        """The verb of a request."""
        return self.first_line.split(" ")[0]

    @property
    def target(self) -> str:
        """The path and query of a request."""
        return self.first_line.split(" ")[1]

    @property
    def status(self) -> int:
        """The status of a response."""
        return int(self.first_line.split(" ")[1])


class Connection:
    """A socket that reads whole HTTP messages."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self._reader = sock.makefile("rb")

    def send(self, data: bytes) -> None:
        """Send all bytes."""
        self.sock.sendall(data)

    def read_head(self) -> Head:
        """Wait for the next message and return its head."""
        lines = [self._line()]
        while lines[-1] not in (b"\r\n", b"\n"):
            lines.append(self._line())
        texts = [line.decode("latin-1").strip() for line in lines]
        fields = (text.partition(":") for text in texts[1:-1])
        return Head(b"".join(lines), texts[0], {name.lower(): value.strip() for name, _, value in fields})

    def request_body(self, head: Head) -> Iterator[bytes]:
        """Yield the body of a request as it is on the wire, chunk sizes included."""
        if "chunked" in head.headers.get("transfer-encoding", ""):
            yield from self._chunked()
        else:
            yield from self._exactly(int(head.headers.get("content-length", 0)))

    def response_body(self, head: Head, method: str) -> Iterator[bytes]:
        """Yield the body of a response as it is on the wire; `method` is the method of the request."""
        if method == "HEAD" or head.status in (204, 304) or head.status < 200:
            return
        if "chunked" in head.headers.get("transfer-encoding", ""):
            yield from self._chunked()
        elif "content-length" in head.headers:
            yield from self._exactly(int(head.headers["content-length"]))
        else:
            while block := self._reader.read1(BLOCK):
                yield block

    def close(self) -> None:
        """Close the connection gracefully."""
        self._reader.close()
        self.sock.close()

    def reset(self) -> None:
        """Close the connection with a RST, so that the other side sees a reset."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def interrupt(self) -> None:
        """Wake threads that read or write this connection; they see its end."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def _line(self) -> bytes:
        line = self._reader.readline()
        if not line.endswith(b"\n"):
            raise HungUp
        return line

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size > 0:
            block = self._reader.read1(min(size, BLOCK))
            if not block:
                raise HungUp
            size -= len(block)
            yield block

    def _chunked(self) -> Iterator[bytes]:
        while True:
            line = self._line()
            yield line
            size = int(line.split(b";")[0], 16)
            yield from self._exactly(size)
            # The line end after a chunk; after the last one, trailers up to an empty line.
            line = self._line()
            yield line
            while size == 0 and line.strip():
                line = self._line()
                yield line
            if size == 0:
                return
