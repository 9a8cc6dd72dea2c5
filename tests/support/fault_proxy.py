"""A proxy in front of any HTTP server that misbehaves on command.

It reads each request and each response as HTTP/1.1, so a fault hits exactly one exchange of a keep-alive
connection. Everything is forwarded byte for byte: a signed request stays valid.

One fault is active at a time and every request looks it up anew, so switching also reaches connections that are
already open. Faults with `times` end by themselves.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from .http_connection import Connection, Head, HungUp

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of matching requests. `method` and `path` limit which match, `times` how many."""

    method: str = ""
    path: str = ""
    times: int | None = None

    def hits(self, request: Head) -> bool:
        """Whether this fault applies to the request."""
        return self.method in ("", request.method) and self.path in request.target


class Refuse(Fault):
    """The connection is reset."""


class Hang(Fault):
    """The request is accepted and never answered."""


class LoseAnswer(Fault):
    """The server handles the request, and the connection ends before the answer."""


@dataclass(frozen=True, kw_only=True)
class Slow(Fault):
    """Bodies are throttled in both directions, each on its own or all together."""

    bytes_per_second: float
    link: threading.Lock | None = None
    """What bodies share if they are throttled together."""


@dataclass(frozen=True, kw_only=True)
class Truncate(Fault):
    """The response ends after `length` bytes of its body, while its head announces all of them."""

    body_bytes: int


@dataclass(frozen=True, kw_only=True)
class CutUpload(Fault):
    """The server receives `body_bytes` of the request's body, then both connections end."""

    body_bytes: int


@dataclass(frozen=True, kw_only=True)
class Late(Fault):
    """The request is forwarded after `seconds`."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class AnswerError(Fault):
    """The proxy answers with an error status; the server never sees the request."""

    status: int


Choice = Callable[[Head], Fault | None]
"""Decides about each request; called by one thread at a time."""


class FaultProxy:
    """Listens on `url` and forwards to the server at `target`, until `stop()`.

    `connections` and `requests` count what clients sent, `faults_hit` how often a fault struck.
    """

    def __init__(self, target: str, observe: Callable[[Head], None] = lambda _: None) -> None:
        """`observe` is called with each request, by any thread."""
        self._observe = observe
        address = urlsplit(target)
        if address.hostname is None or address.port is None:
            raise ValueError(f"the target needs a host and a port: {target}")
        self._server_address = (address.hostname, address.port)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        # The path stays, so that the address of an Azurite account can be swapped for the proxy's.
        self.url = f"http://127.0.0.1:{self.port}{address.path}"
        self.connections = 0
        self.requests = 0
        self.faults_hit = 0
        self._fault: Fault | None = None
        self._choice: Choice | None = None
        self._times_left: int | None = None
        self._switches = 0
        self._stopped = False
        # Guards all state, and wakes hanging requests when the fault changes.
        self._changed = threading.Condition()
        self._open: set[Connection] = set()
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def pass_through(self) -> None:
        """Forward everything; requests that still hang are reset."""
        self._switch(None)

    def refuse(self) -> None:
        """Reset every connection, as a server does that is shutting down."""
        self._switch(Refuse())

    def hang(self, *, times: int | None = None, method: str = "", path: str = "") -> None:
        """Accept requests and never answer, until another fault is set."""
        self._switch(Hang(times=times, method=method, path=path))

    def slow(self, bytes_per_second: float, *, method: str = "", path: str = "", together: bool = False) -> None:
        """Throttle uploads and downloads to this rate, each or all together."""
        link = threading.Lock() if together else None
        self._switch(Slow(bytes_per_second=bytes_per_second, method=method, path=path, link=link))

    def truncate(self, body_bytes: int, *, times: int | None = 1, method: str = "GET", path: str = "") -> None:
        """Cut the next matching responses after `length` bytes of their bodies."""
        self._switch(Truncate(body_bytes=body_bytes, times=times, method=method, path=path))

    def answer_5xx(self, times: int | None, *, status: int = 503, method: str = "", path: str = "") -> None:
        """Answer the next requests with an error, then forward; with `times=None` until another fault is set."""
        self._switch(AnswerError(status=status, times=times, method=method, path=path))

    def lose_answer(self, times: int | None = 1, *, method: str = "", path: str = "") -> None:
        """Let the server handle the next requests, but reset their connections instead of answering."""
        self._switch(LoseAnswer(times=times, method=method, path=path))

    def choose(self, choice: Choice) -> None:
        """Ask for the fault of each request, until another fault is set."""
        self._switch(None, choice)

    def stop(self) -> None:
        """Stop listening, end all connections and wait for their threads."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
            for connection in self._open:
                connection.interrupt()
        # shutdown before close: it wakes the accept() that the other thread waits in.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _switch(self, fault: Fault | None, choice: Choice | None = None) -> None:
        with self._changed:
            self._fault, self._choice = fault, choice
            self._times_left = fault.times if fault else None
            self._switches += 1
            self._changed.notify_all()

    def _accept(self) -> None:
        while True:
            try:
                client = Connection(self._listener.accept()[0])
            except OSError:
                return
            with self._changed:
                self.connections += 1
                refused = isinstance(self._fault, Refuse)
                self.faults_hit += refused
            if refused:
                client.reset()
                continue
            thread = threading.Thread(target=self._serve, args=(client,))
            self._threads = [old for old in self._threads if old.is_alive()] + [thread]
            thread.start()

    def _serve(self, client: Connection) -> None:
        with contextlib.suppress(HungUp, OSError), self._tracked(client):
            server: Connection | None = None
            with contextlib.ExitStack() as opened:
                while True:
                    _wait_for_request(client, server)
                    request = client.read_head()
                    self._observe(request)
                    fault = self._take_fault(request)
                    if isinstance(fault, AnswerError):
                        _answer_error(client, request, fault.status)
                        continue
                    if isinstance(fault, Hang):
                        self._wait_for_switch()
                    if isinstance(fault, Hang | Refuse):
                        client.reset()
                        return
                    if isinstance(fault, Late):
                        self._wait_for_switch(fault.seconds)
                    if server is None:
                        server = Connection(socket.create_connection(self._server_address))
                        opened.enter_context(self._tracked(server))
                    _exchange(client, server, request, fault)

    @contextlib.contextmanager
    def _tracked(self, connection: Connection) -> Iterator[None]:
        with self._changed:
            self._open.add(connection)
            if self._stopped:
                connection.interrupt()
        try:
            yield
        finally:
            with self._changed:
                self._open.discard(connection)
            connection.close()

    def _take_fault(self, request: Head) -> Fault | None:
        with self._changed:
            self.requests += 1
            fault = self._choice(request) if self._choice else self._fault
            if fault is None or self._times_left == 0 or not fault.hits(request):
                return None
            self.faults_hit += 1
            if self._times_left is not None:
                self._times_left -= 1
            return fault

    def _wait_for_switch(self, seconds: float | None = None) -> None:
        with self._changed:
            began = self._switches
            self._changed.wait_for(lambda: self._stopped or self._switches != began, seconds)


def _wait_for_request(client: Connection, server: Connection | None) -> None:
    # A server that ends an idle connection must be seen by the client at once, not at its next request.
    if server is None:
        return
    with selectors.DefaultSelector() as either:
        either.register(client.sock, selectors.EVENT_READ)
        either.register(server.sock, selectors.EVENT_READ)
        ready = {key.fileobj for key, _ in either.select()}
    if client.sock not in ready:
        raise HungUp


def _exchange(client: Connection, server: Connection, request: Head, fault: Fault | None) -> None:
    """Forward one request and its response; raises HungUp when the connection is over after it."""
    server.send(request.raw)
    if request.headers.get("expect", "").lower() == "100-continue":
        client.send(CONTINUE)
    if isinstance(fault, CutUpload):
        for block in _first_bytes(client.request_body(request), fault.body_bytes):
            server.send(block)
        client.reset()
        raise HungUp
    for block in _paced(client.request_body(request), fault):
        server.send(block)
    response = server.read_head()
    while response.status < 200:
        # The server's own 100 Continue: the client has ours.
        response = server.read_head()
    body = server.response_body(response, request.method)
    if isinstance(fault, LoseAnswer):
        for _ in body:
            pass
        client.reset()
        raise HungUp
    client.send(response.raw)
    if isinstance(fault, Truncate):
        for block in _first_bytes(body, fault.body_bytes):
            client.send(block)
        raise HungUp
    for block in _paced(body, fault):
        client.send(block)
    if "close" in (response.headers.get("connection", "").lower(), request.headers.get("connection", "").lower()):
        raise HungUp
    if not {"content-length", "transfer-encoding"} & response.headers.keys() and response.status not in (204, 304):
        # Without a length the end of the connection was the end of the body.
        raise HungUp


def _paced(blocks: Iterable[bytes], fault: Fault | None) -> Iterator[bytes]:
    if not isinstance(fault, Slow):
        yield from blocks
        return
    # Twenty pieces a second: even enough for a client's read timeout to see bytes coming.
    size = max(1, int(fault.bytes_per_second / 20))
    for block in blocks:
        for start in range(0, len(block), size):
            piece = block[start : start + size]
            with fault.link or contextlib.nullcontext():
                time.sleep(len(piece) / fault.bytes_per_second)
            yield piece


def _first_bytes(blocks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    for block in blocks:
        if limit <= 0:
            return
        yield block[:limit]
        limit -= len(block)


def _answer_error(client: Connection, request: Head, status: int) -> None:
    # The body is read first: an answer in the middle of an upload would end the connection, which is another fault.
    if request.headers.get("expect", "").lower() == "100-continue":
        client.send(CONTINUE)
    for _ in client.request_body(request):
        pass
    body = b"" if request.method == "HEAD" else b"<Error><Code>FaultProxy</Code></Error>"
    client.send(f"HTTP/1.1 {status} Fault\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
