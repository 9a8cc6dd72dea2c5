"""The real application on a real port, for tests."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from ray_history.archive.stores import Store
from ray_history.connections import LimitedConnection
from ray_history.history.engine import Limits
from ray_history.index.build.order import Builds
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from ray_history.server.app import AppConfig, make_app
from ray_history.server.sessions.manager import Sessions
from tests.support.processes import free_port


@dataclass(frozen=True)
class Answer:
    """An answer of the server."""

    status: int
    headers: dict[str, str] = field(repr=False)
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.json["data"]["result"]["result"]
        return rows


@dataclass(frozen=True)
class Served:
    """A running server."""

    port: int
    sessions: Sessions

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Answer:
        """Send one request; the path is sent without encoding."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=200)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            return Answer(
                response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()


@contextmanager
def served(
    store: Store,
    cache: Path,
    choices: AppConfig | None = None,
    *,
    most_open: int = 8,
    recheck: float = 0.5,
    query_memory: int = 256 << 20,
    builds: Builds | None = None,
) -> Iterator[Served]:
    """Run the application on its own port until the block ends."""
    indexer = Indexer(store, Cache(cache, 1 << 30), Limits(512 << 20, 2), builds=builds)
    sessions = Sessions(indexer, most_open=most_open, query_memory=query_memory, threads=2, recheck=recheck)
    port = free_port()
    app = make_app(sessions, choices or AppConfig())
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, proxy_headers=False, http=LimitedConnection)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + 20
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.started
        yield Served(port, sessions)
    finally:
        server.should_exit = True
        thread.join()
