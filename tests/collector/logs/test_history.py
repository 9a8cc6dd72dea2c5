"""Random histories of files, store and collector against a model: uploaded bytes stay readable."""

from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ray_history.archive.errors import ArchiveError
from ray_history.collector.logs import bundles, full_uploads, preservation

from .log_archive import NODE, Node


@dataclass(eq=False)
class Content:
    """The content of one file under all its names; a truncated file counts as another one."""

    names: set[str]
    data: bytearray = field(default_factory=bytearray)
    shipped: int = 0
    """The number of bytes that must stay readable."""


class InLine:
    """Stands in for a pool of threads: does the work at once."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        return

    def __enter__(self) -> InLine:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001 - the caller sees it
            future.set_exception(error)
        return future


NAMES = ["raylet.out", "gcs_server.out", "worker-1.err"]


class LogsOfANode(RuleBasedStateMachine):
    """Uploaded bytes stay readable under the documented names; no other bytes are ever read."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="logs-"))
        self.disk: dict[str, Content] = {}
        self.contents: list[Content] = []
        self.source = random.Random(1)
        self.old_states: list[bytes] = []
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(full_uploads, "ThreadPoolExecutor", InLine)  # so that an example runs the same way again
        ticks = count(1_700_000_000)
        self.patch.setattr(time, "time_ns", lambda: next(ticks) * 1_000_000_000)
        self.patch.setattr(os, "fsync", lambda _descriptor: None)  # killing a process does not need it
        self.patch.setattr(preservation, "KEPT_REWRITES", 10**6)  # the model has no exception
        self.patch.setattr(bundles.Bundles, "max_run", 3)
        self.patch.setattr(bundles.Bundles, "small", 600)
        self.patch.setattr(bundles.Bundles, "grace", 0.0)
        self.node = Node(self.folder, bundle_bytes=300, open_files=3)

    def teardown(self) -> None:
        self.patch.undo()
        self.node.shipper.close()
        shutil.rmtree(self.folder)

    # The disk

    def begin(self, name: str, data: bytes = b"") -> Content:
        content = self.disk[name] = Content({name}, bytearray(data))
        self.contents.append(content)
        return content

    def renamed(self, name: str, target: str) -> None:
        self.node.rename(name, target)
        content = self.disk[target] = self.disk.pop(name)
        content.names.add(target)

    @rule(name=st.sampled_from(NAMES), amount=st.sampled_from([8, 30, 200, 1500]))
    def write(self, name: str, amount: int) -> None:
        data = self.source.randbytes(amount)
        content = self.disk.get(name) or self.begin(name)
        content.data += data
        self.node.write(name, data)

    @precondition(lambda self: self.disk)
    @rule(data=st.data())
    def append_anywhere(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.disk)))
        more = self.source.randbytes(20)
        self.disk[name].data += more
        self.node.write(name, more)

    @rule(name=st.sampled_from(NAMES), again=st.booleans())
    def rotate(self, name: str, again: bool) -> None:
        if name not in self.disk:
            return
        for number in (2, 1):
            if f"{name}.{number}" in self.disk:
                self.renamed(f"{name}.{number}", f"{name}.{number + 1}")
        self.renamed(name, f"{name}.1")
        if again:
            self.write(name, 30)

    @rule(name=st.sampled_from(NAMES))
    def copy_and_truncate(self, name: str) -> None:
        if name not in self.disk:
            return
        if f"{name}.1" in self.disk:
            self.renamed(f"{name}.1", f"{name}.2")
        shutil.copyfile(self.node.logs / name, self.node.logs / f"{name}.1")
        copied = self.begin(f"{name}.1", bytes(self.disk[name].data))
        copied.names = self.disk[name].names  # the same bytes: where the copy is, the original is found
        copied.names.add(f"{name}.1")
        os.truncate(self.node.logs / name, 0)
        self.begin(name).names = copied.names

    @precondition(lambda self: self.disk)
    @rule(data=st.data(), more=st.sampled_from([0, 30, 2000]))
    def truncate(self, data: st.DataObject, more: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.disk)))
        size = data.draw(st.integers(0, len(self.disk[name].data)))
        os.truncate(self.node.logs / name, size)
        added = self.source.randbytes(more)
        self.node.write(name, added)
        before = self.disk[name]
        after = self.begin(name, bytes(before.data[:size]) + added)
        after.names = before.names  # when it is renamed before the next scan, either name may be kept

    @precondition(lambda self: self.disk)
    @rule(data=st.data(), recreate=st.booleans())
    def delete(self, data: st.DataObject, recreate: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.disk)))
        os.unlink(self.node.logs / name)
        del self.disk[name]
        if recreate:
            more = self.source.randbytes(50)
            self.begin(name, more)
            self.node.write(name, more)

    @rule(name=st.sampled_from(NAMES))
    def move_to_old(self, name: str) -> None:
        if name in self.disk:
            self.renamed(name, f"old/{name}")

    @precondition(lambda self: self.disk)
    @rule(data=st.data())
    def rename_onto_any(self, data: st.DataObject) -> None:
        names = sorted(self.disk)
        name, target = data.draw(st.sampled_from(names)), data.draw(st.sampled_from([*names, *NAMES]))
        if name != target:
            self.renamed(name, target)

    @precondition(lambda self: len(self.disk) > 1)
    @rule(data=st.data())
    def swap(self, data: st.DataObject) -> None:
        one, other = data.draw(st.permutations(sorted(self.disk)))[:2]
        self.renamed(one, "between")
        self.renamed(other, one)
        self.renamed("between", other)

    # The collector

    @rule()
    def scan(self) -> None:
        self.node.shipper.scan()

    @rule()
    def ship_tails(self) -> None:
        self.node.shipper.scan()
        self.node.shipper.ship_tails()

    @rule()
    def an_interval_passes(self) -> None:
        self.node.interval()
        for name, content in self.disk.items():
            content.shipped = len(content.data)
            if content.data:
                assert self.node.read(name) == content.data, name

    @rule()
    def finish(self) -> None:
        self.node.finish()
        objects = self.node.objects()
        for name, content in self.disk.items():
            content.shipped = len(content.data)
            assert objects[name] == content.data, name
        assert not self.node.bundles()

    @rule(seed=st.integers(0, 100), arrives=st.booleans(), what=st.sampled_from(["interval", "finish", "tails"]))
    def the_store_fails_at_times(self, seed: int, arrives: bool, what: str) -> None:
        asked: Counter[tuple[str, str]] = Counter()

        def fails(operation: str, key: str) -> bool:
            request = operation, re.sub("until-[0-9TZ]+", "until", key)
            asked[request] += 1
            return zlib.crc32(f"{seed} {request} {asked[request]}".encode()) % 10 < 4

        with self.node.failing(fails, arrives):
            try:
                if what == "finish":
                    self.node.shipper.finish(float("inf"), final=False)
                elif what == "interval":
                    self.node.interval()
                else:
                    self.ship_tails()
            except ArchiveError:
                return

    @rule()
    def the_collector_is_killed(self) -> None:
        self.node.crash()

    @rule(operation=st.integers(1, 12), arrives=st.booleans(), what=st.sampled_from(["interval", "finish"]))
    def the_collector_is_killed_at_work(self, operation: int, arrives: bool, what: str) -> None:
        class Killed(BaseException):
            pass

        left = operation

        def fails(operation: str, _key: str) -> bool:
            nonlocal left
            left -= operation != "get_range"  # those run in threads, in any order
            if left < 0 or (left == 0 and not arrives):
                raise Killed
            return False

        with self.node.failing(fails):
            try:
                if what == "finish":
                    self.node.shipper.finish(float("inf"), final=False)
                else:
                    self.node.interval()
            except Killed:
                pass
        self.node.crash()

    @rule()
    def the_state_file_is_copied(self) -> None:
        if self.node.state_file.exists():
            self.old_states.append(self.node.state_file.read_bytes())

    @precondition(lambda self: self.old_states)
    @rule(data=st.data())
    def an_old_state_file_comes_back(self, data: st.DataObject) -> None:
        self.node.shipper.close()
        self.node.state_file.write_bytes(self.old_states[data.draw(st.integers(0, len(self.old_states) - 1))])
        self.node.start()

    @rule()
    def the_state_file_is_lost(self) -> None:
        self.node.shipper.close()
        self.node.state_file.unlink(missing_ok=True)
        self.node.start()

    # What must hold

    @invariant()
    def what_was_shipped_is_readable_and_nothing_else(self) -> None:
        files = self.node.files()
        readable: list[tuple[str, bytes]] = []
        for file in files.list(NODE) if files.nodes() else ():
            for each in (file, *files.earlier(file)):
                reader = files.open(each)
                if not reader.gaps:
                    data = b"".join(reader.stream())
                    readable.append((each.name, data))
                    assert any(content.data.startswith(data) for content in self.contents), each.name
        assert files.problems == []
        for content in self.contents:
            if content.shipped:
                assert any(
                    data[: content.shipped] == content.data[: content.shipped]
                    and any(name == known or name.startswith(f"{known}.until-") for known in content.names)
                    for name, data in readable
                ), (content.names, content.shipped, [(name, len(data)) for name, data in readable])


LogsOfANode.TestCase.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, report_multiple_bugs=False
)


TestLogsOfANode = LogsOfANode.TestCase
