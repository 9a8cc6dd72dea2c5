"""The limits of a connection, before anything is known about its client, at the server's port and the collector's.

A request must arrive whole within a time, its head and its body may have 64 KiB each, and an address may have a number
of connections. One more takes the place of a connection on which no request is being answered: first of one that never
sent a whole request, which an attacker needs and a proxy does not. The collector takes larger bodies, and limits them
itself.

uvicorn's parser has no limit of its own: it would collect header fields as long as they come, at fifteen times their
size.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from http import HTTPStatus
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

CONNECTIONS = "connections"
"""The key of the connections in the state of the application."""

CLOSING_REASONS = ("idle", "unfinished", "stalled", "invalid", "too_large", "too_many")

HEAD_BYTES = 64 << 10
HEAD_FIELDS = 100
BODY_BYTES = 64 << 10
PIPELINED = 16
"""Requests that a client may send before it has the answer to the first."""

_LINGER = 5.0
"""Seconds to read on after a refusal. A connection that is closed with unread bytes is reset, and the client would lose
the answer."""


class Connections:
    """The connections of this process."""

    def __init__(
        self,
        per_address: int = 512,
        request_seconds: float = 30.0,
        stalled_seconds: float = 300.0,
        body_bytes: float = BODY_BYTES,
    ) -> None:
        self.per_address, self.request_seconds, self.stalled_seconds = per_address, request_seconds, stalled_seconds
        self.body_bytes = body_bytes
        self.closed: Counter[str] = Counter()
        """By reason: those that a limit closed."""
        self._by_address: dict[str, dict[LimitedConnection, None]] = {}

    @property
    def open_count(self) -> int:
        return sum(map(len, list(self._by_address.values())))

    def add(self, connection: LimitedConnection) -> bool:
        """False if its address has too many connections, and all of them are being answered."""
        neighbours = self._by_address.setdefault(connection.address, {})
        if len(neighbours) >= self.per_address:
            waiting = (other for other in neighbours if not other.is_answering or other.is_receiving_body)
            oldest = min(waiting, key=lambda other: other.requests > 0, default=None)
            if oldest is None:
                return False
            oldest.cut("too_many")
        self._by_address.setdefault(connection.address, {})[connection] = None
        return True

    def remove(self, connection: LimitedConnection) -> None:
        neighbours = self._by_address.get(connection.address, {})
        neighbours.pop(connection, None)
        if not neighbours:
            self._by_address.pop(connection.address, None)


class _Refused(Exception):
    """Ends the parsing of a request."""


class LimitedConnection(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.address = ""
        self.requests = 0
        """Those that arrived whole."""
        self._connections: Connections = self.app_state[CONNECTIONS]
        self._is_over = False
        """Refused, or handed over to the protocol of web sockets."""
        self._is_receiving = self._has_head = False
        self._undelivered = self._head_bytes = self._fields = self._body_bytes = 0
        self._problem: tuple[int, str, str] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._unsent = 0

    @property
    def is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def is_receiving_body(self) -> bool:
        return self._is_receiving and self._has_head

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = network_of(self.client[0]) if self.client else "unknown"
        if self._connections.add(self):
            self._set_deadline()
        else:
            self._refuse(503, "too many connections from this address; try again later", "too_many")

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        self._clear_deadline()
        self._stop_watching()
        super().connection_lost(exc)

    def cut(self, reason: str) -> None:
        """Close the connection without an answer."""
        self._connections.closed[reason] += 1
        self._connections.remove(self)
        self._is_over = True
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._undelivered += len(data)
        super().data_received(data)
        if self._is_over:
            return
        # What the parser keeps for itself: an unfinished head, or anything but content in a chunked body.
        if self._undelivered > HEAD_BYTES:
            self._refuse(*_HEAD_TOO_LARGE)
        elif self._is_receiving or self._undelivered:
            self._set_deadline()
        else:
            self._clear_deadline()

    def handle_websocket_upgrade(self) -> None:
        self._is_over = True
        self._connections.remove(self)
        self._clear_deadline()
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        self._is_receiving, self._has_head = True, False
        self._head_bytes = self._fields = self._body_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > HEAD_BYTES:
            self._stop(414, f"the address is longer than {HEAD_BYTES >> 10} KiB", "too_large")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += 1
        self._head_bytes += len(name) + len(value) + len(b": \r\n")
        if self._fields > HEAD_FIELDS or self._head_bytes + len(self.url) > HEAD_BYTES:
            self._stop(*_HEAD_TOO_LARGE)
        if name.lower() == b"content-length" and value.isdigit():
            self._limit_body(int(value[:20]))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= PIPELINED:
            self._stop(429, f"more than {PIPELINED} requests at a time on one connection", "too_many")
        if self.parser.should_upgrade() and self._should_upgrade():
            names = {name for name, _ in self.headers}
            if self.parser.get_method() != b"GET" or names & {b"content-length", b"transfer-encoding"}:
                # The protocol of web sockets would wait for ever, without a limit of time.
                self._stop(400, "a web socket is opened by a GET request without a body", "invalid")
        super().on_headers_complete()
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._undelivered = max(0, self._undelivered - len(body))
        self._body_bytes += len(body)
        self._limit_body(self._body_bytes)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_receiving, self._undelivered = False, 0
        self.requests += 1
        self._clear_deadline()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(*(self._problem or (400, msg, "invalid")))

    def timeout_keep_alive_handler(self) -> None:
        if not self.transport.is_closing():
            self.cut("idle")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def _stop(self, status: int, message: str, reason: str) -> None:
        self._problem = status, message, reason
        raise _Refused  # the parser turns it into an error, which uvicorn passes to `send_400_response`

    def _limit_body(self, size: int) -> None:
        limit = self._connections.body_bytes
        if size > limit:
            self._stop(413, f"the body of the request is larger than {limit / 1024:g} KiB", "too_large")

    def _set_deadline(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self._connections.request_seconds, self._expire)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self._deadline = None
        if self._is_over:
            self.transport.abort()
        elif self.is_receiving_body:
            self._refuse(408, "the body of the request did not arrive in time", "unfinished")
        elif self.is_answering:  # of an earlier request
            self._set_deadline()
        elif self._is_receiving or self._undelivered:
            self._refuse(408, "the head of the request did not arrive in time", "unfinished")
        else:
            self.cut("idle")

    def _refuse(self, status: int, message: str, reason: str) -> None:
        """Answer at the level of the connection, and close it when the client has read the answer."""
        is_answered = self._has_head and self.cycle is not None and self.cycle.response_started
        if is_answered or (self.is_answering and not self._has_head):  # this would end up within another answer
            self.cut(reason)
            return
        self._connections.closed[reason] += 1
        self._is_over = True
        if self.cycle is not None:  # its handler is still reading the body
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = (message or HTTPStatus(status).phrase).encode()
        head = b"content-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: "
        self.transport.write(STATUS_LINE[status] + head + str(len(body)).encode() + b"\r\n\r\n" + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._clear_deadline()
        self._deadline = self.loop.call_later(_LINGER, self._expire)

    def _watch(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self._connections.stalled_seconds, self._check_progress)

    def _stop_watching(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _check_progress(self) -> None:
        """An answer that nobody reads holds memory of its session."""
        if self.transport.get_write_buffer_size() >= self._unsent:
            self.cut("stalled")
        else:
            self._watch()


_HEAD_TOO_LARGE = (
    431,
    f"the head of the request is larger than {HEAD_BYTES >> 10} KiB or has more than {HEAD_FIELDS} fields",
    "too_large",
)


def network_of(address: str) -> str:
    """What counts as one client: an address, or a /64 network of IPv6."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and not parsed.ipv4_mapped:
        return str(ip_network((parsed, 64), strict=False))
    return address
