"""A keep-alive HTTP/1.1 server in a thread, for the stand-ins; stopping it leaves no thread and no socket."""

from __future__ import annotations

import contextlib
import functools
import re
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl

from .object_api import Answer, Request, error_answer
from .object_memory import Bucket, ObjectError

Respond = Callable[[Request], Answer]


class StandInServer:
    """Base of the object stand-ins: buckets, the requests received, and one or more addresses."""

    def __init__(self, buckets: Sequence[str]) -> None:
        self.buckets = {name: Bucket() for name in buckets}
        self.requests: list[str] = []
        self._listening: list[tuple[_Server, threading.Thread]] = []

    def keys(self, bucket: str) -> list[str]:
        """Return the keys a bucket holds, in order."""
        return sorted(self.buckets[bucket].objects, key=str.encode)

    def stop(self) -> None:
        """Stop serving, end open connections and wait for their threads; `buckets` stays readable."""
        while self._listening:
            server, thread = self._listening.pop()
            server.shutdown()
            thread.join()
            server.end_connections()
            server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _listen(self, respond: Respond) -> str:
        """Serve on one more free loopback port and return its address."""
        server = _Server(("127.0.0.1", 0), functools.partial(_Exchange, respond, self.requests))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        self._listening.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}"

    def _bucket(self, name: str) -> Bucket:
        if name not in self.buckets:
            raise ObjectError(404, "NoSuchBucket", "The specified bucket does not exist.")
        return self.buckets[name]


class _Server(ThreadingHTTPServer):
    # Threads that are not daemons are joined by server_close(): nothing outlives the test that started it.
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], exchange: Callable[..., BaseHTTPRequestHandler]) -> None:
        self._open: set[Any] = set()
        self._open_lock = threading.Lock()
        super().__init__(address, exchange)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        with self._open_lock:
            self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        with self._open_lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that hangs up is what the fault tests do on purpose; anything else is a bug.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Exchange(BaseHTTPRequestHandler):
    """Translates between http.server and Request and Answer."""

    protocol_version = "HTTP/1.1"
    # Head and body are two writes; with Nagle's algorithm the second waits 40 ms for an acknowledgement.
    disable_nagle_algorithm = True

    def __init__(self, respond: Respond, seen: list[str], *args: Any) -> None:
        self.respond = respond
        self.seen = seen
        super().__init__(*args)

    def exchange(self) -> None:
        # Not self.path: http.server folds a leading `//` into `/`, and the key `/a` must stay different from `a`.
        target = self.requestline.split()[1]
        headers = {name.lower(): value for name, value in self.headers.items()}
        # A client that takes us for its HTTP proxy sends the whole address.
        address = re.fullmatch(r"https?://([^/?]+)(.*)", target)
        host, rest = address.groups() if address else (headers.get("host", ""), target)
        path, _, query = rest.partition("?")
        request = Request(
            method=self.command,
            host=host,
            path=path,
            query=dict(parse_qsl(query, keep_blank_values=True)),
            headers=headers,
            body=self.rfile.read(int(headers.get("content-length", 0))),
        )
        self.seen.append(f"{self.command} {target}")
        try:
            answer = self.respond(request)
        except ObjectError as error:
            answer = error_answer(error)
        self._send(answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = exchange  # noqa: N815 (the names http.server calls)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        has_body = answer.status not in (204, 304)
        if has_body:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if has_body and self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, *_: object) -> None:
        """Log nothing: `requests` of the stand-in has every request."""
