"""What senders on the node can make the collector's port do, with sockets and the real HTTP server."""

from __future__ import annotations

import http.client
import math
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from ray_history.collector.ingest.http import GroupCommit, IngestApp
from ray_history.collector.ingest.spool import Spool
from ray_history.collector.ingest.status_pages import pages
from ray_history.collector.process import serve
from ray_history.connections import HEAD_BYTES, Connections
from tests.support.waiting import LIMIT, until

from .test_status_pages import STATUS

BODY = 1 << 20
HEAD = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


class Port:
    """The port of a collector."""

    def __init__(self, app: IngestApp, number: int) -> None:
        self.app, self.number = app, number

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.number), timeout=LIMIT)

    def post(self, body: bytes = b"[]") -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.number, timeout=LIMIT)
        try:
            connection.request("POST", "/v1/events", body, {"Content-Type": "application/json"})
            return connection.getresponse().status
        finally:
            connection.close()

    def _holds(self, size: int, given_up: int) -> bool:
        return (self.app._in_flight, self.app.refused["slow"]) == (size, given_up)

    @contextmanager
    def unfinished_posts(self, number: int, missing: int = 200) -> Iterator[list[socket.socket]]:
        """Posts of the largest size that lack their last bytes; all else has arrived."""
        with ExitStack() as stack:
            senders = []
            for count in range(number):
                senders.append(stack.enter_context(self.connect()))
                senders[-1].sendall(HEAD + b"Content-Length: %d\r\n\r\n" % BODY + b" " * (BODY - missing))
                given_up = max(0, count - 1)
                held = (count + 1 - given_up) * (BODY - missing)
                until(partial(self._holds, held, given_up))
            yield senders


def everything(connection: socket.socket) -> bytes:
    pieces = []
    with suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


@contextmanager
def listening(folder: Path, connections: Connections) -> Iterator[Port]:
    spool = Spool(folder / "spool")
    commit = GroupCommit(spool)
    app = IngestApp(commit, pages(lambda: STATUS), body_bytes=BODY, connections=connections)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = serve(app, listener)
        yield Port(app, listener.getsockname()[1])
        server.should_exit = True
    commit.stop()
    spool.close()


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Port]:
    """Waits for the end of a body longer than the test does."""
    with listening(tmp_path, Connections(request_seconds=LIMIT, body_bytes=math.inf)) as port:
        yield port


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Port]:
    with listening(tmp_path, Connections(per_address=8, request_seconds=0.5, body_bytes=math.inf)) as port:
        yield port


def test_unfinished_posts_do_not_keep_others_out(patient: Port) -> None:
    with patient.unfinished_posts(2) as (slowest, second):
        assert patient.post(b"[" + b" " * (BODY // 2) + b"]") == 200
        assert b" 503 " in everything(slowest)
        second.sendall(b" " * 200)
        assert second.recv(1 << 16)[9:12] == b"200", "there is room for it: it may take its time"
    assert (patient.app.refused["slow"], patient.app.refused["busy"]) == (1, 0)
    until(lambda: not patient.app._in_flight)


def test_many_unfinished_posts_leave_no_memory_behind(patient: Port) -> None:
    with patient.unfinished_posts(6):
        assert patient.app._in_flight <= 2 * BODY
        assert patient.post() == 200
    until(lambda: not patient.app._in_flight and not patient.app._arriving)


def test_a_post_that_stalls_is_given_up_and_counted(port: Port) -> None:
    with port.unfinished_posts(1) as (stalled,):
        assert everything(stalled)[9:12] == b"408"
    assert port.app.connections.closed["unfinished"] == 1
    assert port.post() == 200
    assert not port.app._in_flight


def test_a_head_over_the_limit_is_refused(port: Port) -> None:
    with port.connect() as connection:
        with suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(HEAD + b"A: " + b"b" * HEAD_BYTES * 4)
        assert b" 431 " in everything(connection)


def test_connections_that_say_nothing_are_closed(port: Port) -> None:
    with port.connect() as silent, port.connect() as half:
        half.sendall(HEAD)
        assert everything(silent) == b""
        assert everything(half)[9:12] == b"408"
    assert port.app.connections.closed["idle"] == 1


def test_stalled_posts_on_every_connection_do_not_keep_others_out(tmp_path: Path) -> None:
    limits = Connections(per_address=8, request_seconds=LIMIT, body_bytes=math.inf)
    with listening(tmp_path, limits) as port, ExitStack() as stack:
        for _ in range(limits.per_address):
            stalled = stack.enter_context(port.connect())
            stalled.sendall(HEAD + b"Content-Length: 10\r\n\r\n[")
        until(lambda: len(port.app._arriving) == limits.per_address)
        assert port.post() == 200
