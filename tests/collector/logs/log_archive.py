"""A node's log directory and an archive in memory, for the tests of log shipping."""

from __future__ import annotations

import os
import random
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ray_history.archive.catalog import Session
from ray_history.archive.errors import Unreachable
from ray_history.archive.layout import Cluster
from ray_history.archive.log_files import LogFile, LogFiles
from ray_history.archive.session_files import list_session
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.interface import chunks_of
from ray_history.collector.destination import Destination
from ray_history.collector.logs.shipper import LogShipper

SESSION = "session_2026-01-11_19-38-40_146706_1"
NODE = "a" * 56
CLUSTER = Cluster("default", "demo")
MIB = 1024 * 1024


class Watched:
    """A store that counts requests and bytes and fails on demand; a failed put may or may not have succeeded."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.requests: Counter[str] = Counter()
        self.sent = 0
        self.fails: Callable[[str, str], bool] = lambda _operation, _key: False
        self.arrives: Callable[[], bool] = lambda: False

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)
        if not callable(operation):
            return operation

        def watched(*arguments: Any, **options: Any) -> Any:
            self.requests[name] += 1
            if self.fails(name, str(arguments[0]) if arguments else ""):
                if self.arrives():
                    operation(*arguments, **options)
                raise Unreachable(f"{name} failed")
            return operation(*arguments, **options)

        return watched

    def put(self, key: str, data: bytes) -> None:
        self.sent += len(data)
        self.__getattr__("put")(key, data)

    def put_stream(self, key: str, source: BinaryIO | Iterable[bytes]) -> int:
        def counted() -> Iterator[bytes]:
            for chunk in chunks_of(source):
                self.sent += len(chunk)
                yield chunk

        size: int = self.__getattr__("put_stream")(key, counted())
        return size


class Node:
    """The log directory of a node, its shipper, and its part of the archive."""

    def __init__(self, folder: Path, store: Store | None = None, **limits: Any) -> None:
        self.logs = folder / "logs"
        self.logs.mkdir(parents=True, exist_ok=True)
        self.state_file = folder / "state" / "logs.json"
        self.real_store = store or open_store(resolve(f"memory://{secrets.token_hex(6)}", Upstream(), {}))
        self.store = Watched(self.real_store)
        self.limits = limits
        self.shipper = self.start()

    def start(self) -> LogShipper:
        """Start the collector with the existing state file, if any."""
        destination = Destination(self.store, CLUSTER)
        self.shipper = LogShipper(destination, SESSION, NODE, self.logs, self.state_file, **self.limits)
        return self.shipper

    def crash(self) -> None:
        self.shipper.close()
        self.start()

    def interval(self) -> None:
        self.shipper.scan()
        self.shipper.ship_tails()
        self.shipper.ship_renamed()

    def finish(self) -> None:
        result = self.shipper.finish(float("inf"), final=True)
        assert result.complete, result

    # The disk

    def write(self, name: str | bytes, data: bytes) -> None:
        """Append."""
        path = os.path.join(os.fsencode(self.logs), os.fsencode(name))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "ab") as file:
            file.write(data)

    def rename(self, name: str, target: str) -> None:
        (self.logs / target).parent.mkdir(parents=True, exist_ok=True)
        os.replace(self.logs / name, self.logs / target)

    def rotate(self, name: str, backups: int = 3) -> None:
        for number in range(backups - 1, 0, -1):
            if (self.logs / f"{name}.{number}").exists():
                self.rename(f"{name}.{number}", f"{name}.{number + 1}")
        self.rename(name, f"{name}.1")

    def on_disk(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.logs)): path.read_bytes() for path in self.logs.rglob("*") if path.is_file()}

    # The archive

    def files(self) -> LogFiles:
        return list_session(self.real_store, Session(CLUSTER, SESSION, 0)).logs(self.real_store)

    def listed(self) -> dict[str, LogFile]:
        files = self.files()
        return {file.name: file for node in files.nodes() for file in files.list(node)}

    def read(self, name: str) -> bytes:
        """The content of a name, as a reader of the archive gets it."""
        files = self.files()
        found = next(file for file in files.list(NODE) if file.name == name)
        return b"".join(files.open(found).stream())

    def archived(self) -> dict[str, bytes]:
        return {name: self.read(name) for name in self.listed()}

    def objects(self) -> dict[str, bytes]:
        """The whole objects, by name."""
        logs = list_session(self.real_store, Session(CLUSTER, SESSION, 0)).whole_logs
        return {name: self.real_store.get(info.key) for _, name, info in logs}

    def bundles(self) -> list[str]:
        return sorted(info.key for _, info in list_session(self.real_store, Session(CLUSTER, SESSION, 0)).tail_bundles)

    @contextmanager
    def failing(self, fails: Callable[[str, str], bool], arrives: bool = False) -> Iterator[None]:
        self.store.fails, self.store.arrives = fails, lambda: arrives
        try:
            yield
        finally:
            self.store.fails = lambda _operation, _key: False


def log_lines(seed: int, size: int) -> bytes:
    """Bytes that look like Ray's logs and compress like them."""
    source = random.Random(seed)
    lines = bytearray()
    while len(lines) < size:
        lines += (
            f"[2026-01-11 19:{source.randrange(60):02}:{source.randrange(60):02},{source.randrange(1000):03} I "
            f"{source.randrange(10**5)} {source.randrange(10**5)}] (raylet) node_manager.cc:{source.randrange(900)}: "
            f"Leased worker {source.randbytes(14).hex()} for task {source.randrange(10**6)}\n"
        ).encode()
    return bytes(lines[:size])


def preserved(node: Node, name: str) -> list[bytes]:
    """The preserved content of files that had this name."""
    return [data for found, data in sorted(node.archived().items()) if found.startswith(f"{name}.until-")]
