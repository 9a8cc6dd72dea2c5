"""The store, its two proxies and the history server, which run through all lives."""

from __future__ import annotations

import http.client
import os
import random
import sys
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple, Self

import obstore
from obstore.store import S3Store

from tests.conftest import s3_variables
from tests.support.fault_proxy import FaultProxy
from tests.support.processes import Process, ProcessFailed, free_port, port_is_open
from tests.support.seaweedfs import SeaweedFS

from .disk import SmallDisk
from .store_faults import StoreFaults

BUCKET = "chaos"
CACHE_MIB = 64
"""Size of the disk of the server's cache."""
PROGRAM = (sys.executable, "-c", "from ray_history.cli import main; main()")


class Answer(NamedTuple):
    """What the history server answered; status 0 if the connection failed."""

    status: int
    body: bytes


def clean_environment(variables: Mapping[str, str]) -> dict[str, str]:
    foreign = ("RAY_", "AWS_", "S3", "STORAGE_")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(foreign)}, **variables}


class HistoryServer:
    """`ray-history serve` on the archive, with a cache of its own."""

    def __init__(self, folder: Path, storage: str, variables: Mapping[str, str], *flags: str) -> None:
        self.cache = folder / "cache"
        self.cache.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.kills = 0
        serve = ("serve", f"--storage={storage}", f"--port={self.port}", f"--cache-dir={self.cache}")
        self.process = Process(
            [*PROGRAM, "--log-level=warning", *serve, "--prebuild=3", "--open-sessions=4", *flags],
            log=folder / "server.log",
            ready=lambda: port_is_open(self.port),
            env=clean_environment(variables),
            start_seconds=120,
        )

    def kill9(self) -> None:
        self.kills += 1
        self.process.kill9()

    def get(self, path: str, **headers: str) -> Answer:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)) as connection:
            try:
                connection.request("GET", path, headers=headers)
                response = connection.getresponse()
                return Answer(response.status, response.read())
            except (OSError, http.client.HTTPException):
                return Answer(0, b"")


class Machine:
    """Everything that outlives a cluster."""

    def __init__(self, folder: Path, seed: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.chance = random.Random(seed)
        self.root = f"run-{seed}"
        self.storage = f"s3://{BUCKET}/{self.root}"
        self._stack = ExitStack()
        self.store = SeaweedFS(folder / "store")
        self.collector_proxy = self._stack.enter_context(FaultProxy(self.store.endpoint))
        self.server_proxy = self._stack.enter_context(FaultProxy(self.store.endpoint))
        self.server = HistoryServer(folder / "server", self.storage, self.variables(self.server_proxy))
        self.cache_disk: SmallDisk | None = None
        self._asking = ThreadPoolExecutor(4)
        self.injected: Counter[str] = Counter()
        self._active: list[StoreFaults] = []

    def variables(self, proxy: FaultProxy) -> dict[str, str]:
        return {**s3_variables(self.store), "S3_ENDPOINT": proxy.url}

    def __enter__(self) -> Self:
        with self._stack:  # a failed start ends what was started
            self._stack.callback(self.store.stop)
            self.store.start()
            obstore.put(self.bucket, "created", b"")
            if SmallDisk.can_mount():
                self.cache_disk = SmallDisk(self.server.cache, CACHE_MIB)
                self._stack.callback(self.cache_disk.unmount)
            self._stack.callback(self._asking.shutdown)
            self._stack.callback(self.server.process.kill9)
            self.server.process.start()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def bucket(self) -> S3Store:
        """Around the proxies."""
        return self.store.store(BUCKET)

    def fail_requests(self, share: float) -> None:
        """Fail this part of all requests of collectors and server, until `heal`."""
        for proxy in (self.collector_proxy, self.server_proxy):
            faults = StoreFaults(self.chance.randrange(1 << 32), share)
            proxy.choose(faults)
            self._active.append(faults)

    def start_store(self) -> None:
        start(self.store.process)

    def start_server(self) -> None:
        start(self.server.process)

    def ask_in_background(self, path: str) -> None:
        """Ask the history server, whatever it answers."""
        self._asking.submit(self.server.get, path)

    def kill_store(self) -> None:
        self.store.kill9()
        self.injected["store: killed"] += 1

    def kill_server(self) -> None:
        self.server.kill9()
        self.injected["server: killed"] += 1

    def heal(self) -> None:
        for proxy in (self.collector_proxy, self.server_proxy):
            proxy.pass_through()
        for faults in self._active:
            self.injected.update(faults.injected)
        self._active.clear()
        if self.cache_disk is not None:
            self.cache_disk.free()
        self.start_store()
        self.start_server()


def start(process: Process) -> None:
    """Start a process unless it runs; a busy machine may need several attempts."""
    for attempt in range(3):
        if process.running:
            return
        try:
            process.start()
        except ProcessFailed:
            if attempt == 2:
                raise
