"""What a client without a token can make the server do, with sockets and a real server process."""

from __future__ import annotations

import json
import re
import secrets
import socket
import sysconfig
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.connections import HEAD_BYTES, HEAD_FIELDS, Connections, network_of
from tests.server.serving import AppConfig, served
from tests.support.captured import captured, write_archive
from tests.support.processes import Process, free_port, port_is_open
from tests.support.waiting import LIMIT, until

SECONDS = 10
PER_ADDRESS = 40
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
LOGIN = b"POST /login HTTP/1.1\r\nHost: localhost\r\n"


class Server:
    """A server that wants a token."""

    def __init__(self, process: Process, port: int) -> None:
        self.process, self.port = process, port

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=LIMIT) as answer:
            return str(answer.read().decode())

    def closed(self, reason: str) -> int:
        found = re.search(rf'closed_total{{reason="{reason}"}} (\S+)', self.get("/metrics"))
        assert found
        return int(float(found[1]))

    def memory(self) -> int:
        """MiB in use."""
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found
        return int(found[1]) >> 10


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder, port = tmp_path_factory.mktemp("door"), free_port()
    (folder / "archive").mkdir()
    people = folder / "people.json"
    people.write_text(json.dumps([{"name": "ada", "token": secrets.token_hex(16), "namespaces": ["*"]}]))
    people.chmod(0o600)
    command = [str(Path(sysconfig.get_path("scripts")) / "ray-history"), "serve", "--port", str(port)]
    command += ["--storage", (folder / "archive").as_uri(), "--cache-dir", str(folder / "cache"), "--kube", "off"]
    command += ["--auth", "token", "--auth-tokens-file", str(people)]
    command += ["--request-timeout", str(SECONDS), "--connections-per-address", str(PER_ADDRESS)]
    with Process(command, log=folder / "log", ready=lambda: port_is_open(port), stop_seconds=20) as process:
        yield Server(process, port)


def everything(connection: socket.socket) -> bytes:
    """All that the server sends until it closes the connection."""
    pieces = []
    with suppress(ConnectionResetError):
        while piece := connection.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


def answer(server: Server, *parts: bytes) -> bytes:
    """The answer to a request; the server may close the connection before it has read all of it."""
    with server.connect() as connection:
        with suppress(ConnectionResetError, BrokenPipeError):
            for part in parts:
                connection.sendall(part)
        return everything(connection)


def alive(connection: socket.socket) -> bytes:
    """The answer to a request on an open connection."""
    connection.sendall(GET + b"\r\n")
    received = b""
    while not received.endswith(b"ok"):
        piece = connection.recv(1 << 16)
        assert piece, received
        received += piece
    return received


def status(text: bytes) -> int:
    return int(text.split(b" ", 2)[1]) if text else 0


@pytest.mark.parametrize(
    "head",
    [
        GET + b"A: " + b"b" * (HEAD_BYTES + 1) + b"\r\n\r\n",
        GET + b"A: b\r\n" * HEAD_FIELDS + b"\r\n",
        GET + b"A: b\r\n" * 100_000 + b"\r\n",
        GET + b"A: " + b"b" * 10_000_000 + b"\r\n\r\n",
        GET + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * 300_000,
        GET + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: " + b"b" * 300_000,
    ],
    ids=[
        "one long field",
        "many fields",
        "very many fields",
        "a very long field",
        "a long extension",
        "a long trailer",
    ],
)
def test_a_head_over_the_limit_is_refused(server: Server, head: bytes) -> None:
    before = server.closed("too_large")
    received = answer(server, head)
    assert status(received) == 431 or (b"chunked" in head and b" 431 " not in received), "it has its answer already"
    assert server.closed("too_large") == before + 1


def test_an_address_over_the_limit_is_refused(server: Server) -> None:
    assert status(answer(server, b"GET /" + b"x" * HEAD_BYTES + b" HTTP/1.1\r\n\r\n")) == 414


def test_a_head_below_the_limit_is_accepted(server: Server) -> None:
    fields = b"".join(b"A%d: %s\r\n" % (number, b"b" * 600) for number in range(90))
    assert status(answer(server, GET + fields + b"Connection: close\r\n\r\n")) == 200


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 1000000\r\n\r\n" + b"x" * 1_000_000,
        b"Content-Length: 99999999999999999999999\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n" + b"1000\r\n" + b"x" * 0x1000 + b"\r\n" * 100_000,
        b"Transfer-Encoding: chunked\r\n\r\n" + (b"1000\r\n" + b"x" * 0x1000 + b"\r\n") * 100,
    ],
    ids=["a length", "a huge length", "lines", "chunks"],
)
def test_a_body_over_the_limit_is_refused(server: Server, body: bytes) -> None:
    assert status(answer(server, LOGIN + body)) in (400, 413)


def test_memory_does_not_grow_with_what_strangers_send(server: Server) -> None:
    answer(server, GET + b"A: b\r\n" * 1000)
    before = server.memory()
    for part in (b"A: b\r\n" * 200_000, b"x" * 1_000_000):
        for begin in (GET + b"A: ", b"GET /", b"\r\n", LOGIN + b"Transfer-Encoding: chunked\r\n\r\n0\r\nA: "):
            answer(server, begin, *[part] * 20)
    assert server.memory() - before < 16
    assert server.get("/livez") == "ok"


def test_unfinished_requests_and_idle_connections_are_closed(server: Server) -> None:
    unfinished, idle = server.closed("unfinished"), server.closed("idle")
    parts = {
        b"": b"",
        GET: b"408",
        b"\r\n": b"408",
        LOGIN + b"Content-Length: 9\r\n\r\ntoken": b"408",
        GET + b"\r\n" + GET: b"200",
    }
    with ExitStack() as stack:
        opened = {part: stack.enter_context(server.connect()) for part in parts}
        for part, connection in opened.items():
            connection.sendall(part)
        for part, connection in opened.items():
            received = everything(connection)
            assert received[9:12] == parts[part], part
            assert parts[part] != b"200" or b"408" in received, "the second request was unfinished"
    assert server.closed("unfinished") >= unfinished + 4
    assert server.closed("idle") >= idle + 1


def test_requests_after_one_another_keep_their_connection(server: Server) -> None:
    with server.connect() as connection:
        for _ in range(3):
            assert status(alive(connection)) == 200


def test_new_connections_take_the_place_of_unused_ones(server: Server) -> None:
    before = server.closed("too_many")
    with ExitStack() as stack:
        used = stack.enter_context(server.connect())
        assert status(alive(used)) == 200
        halves = [stack.enter_context(server.connect()) for _ in range(PER_ADDRESS + 10)]
        for half in halves:
            with suppress(ConnectionResetError, BrokenPipeError):
                half.sendall(GET)
        assert server.get("/livez") == "ok"
        assert b"200" not in everything(halves[0]), "the oldest was closed"
        assert status(alive(used)) == 200, "one that was used before was not"
        assert server.closed("too_many") > before


UPGRADE = (
    b" /s/a/b/c/api/jobs/x/logs/tail HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"GET" + UPGRADE + b"\r\n", 401),
        (b"GET" + UPGRADE.replace(b"dGhl", b"!") + b"\r\n", 400),
        (b"GET" + UPGRADE.replace(b"websocket", b"h2c") + b"Connection: close\r\n\r\n", 401),
        (b"POST" + UPGRADE + b"Content-Length: 10\r\n\r\n", 400),
        (b"GET" + UPGRADE + b"Content-Length: 60000\r\n\r\n", 400),
        (b"GET" + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n", 400),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
    ],
    ids=["web socket", "wrong key", "another protocol", "post", "length", "chunked", "connect"],
)
def test_no_upgrade_keeps_a_connection_without_a_token(server: Server, head: bytes, expected: int) -> None:
    memory = server.memory()
    assert status(answer(server, head)) == expected
    answer(server, head, *[b"x" * 65536] * 320)
    assert server.memory() - memory < 16


def test_few_requests_may_wait_on_one_connection(server: Server) -> None:
    before, memory = server.closed("too_many"), server.memory()
    answer(server, *[(GET + b"\r\n") * 1000] * 100)
    assert server.closed("too_many") > before
    assert server.memory() - memory < 16


def test_an_answer_that_nobody_reads_is_given_up(tmp_path: Path) -> None:
    connections = Connections(stalled_seconds=0.5)
    store = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    session, node = captured().session, "1" * 56
    store.put(f"cluster-history/raycluster/default/demo/{session}/{node}/logs/large.log", bytes(32 << 20))
    path = f"/s/default/demo/{session}/api/v0/logs/file?node_id={node}&filename=large.log&lines=-1"
    with served(store, tmp_path / "cache", AppConfig(connections=connections)) as running:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", running.port))
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            until(lambda: connections.closed["stalled"])
        until(lambda: not connections.open_count)
        assert len(running.get(path).body) == 32 << 20


def test_what_counts_as_one_address() -> None:
    assert network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("2001:db8::1%eth0") == network_of("2001:db8::ffff") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:192.0.2.1") != network_of("::ffff:192.0.2.2")
    assert network_of("unknown") == "unknown"
