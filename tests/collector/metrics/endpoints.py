"""Endpoints with metrics: those of a real Prometheus client, and broken ones."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from tests.support.processes import free_port


@dataclass
class Endpoint:
    """A page with metrics on loopback."""

    port: int
    value: Gauge


@contextmanager
def endpoint(port: int = 0) -> Iterator[Endpoint]:
    """The endpoint of a program that uses Prometheus' client."""
    registry = CollectorRegistry()
    value = Gauge("ray_node_mem_used", "Memory", ["instance"], registry=registry)
    port = port or free_port()
    server, thread = start_http_server(port, "127.0.0.1", registry)
    try:
        yield Endpoint(port, value.labels("node"))  # type: ignore[arg-type]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def broken_endpoint(answer: bytes) -> Iterator[int]:
    """A stand-in for an endpoint that sends these bytes and closes the connection."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
