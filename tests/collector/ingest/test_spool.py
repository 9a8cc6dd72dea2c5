"""Acknowledged bodies can be read again, whatever happens to the process, the disk or the bytes."""

from __future__ import annotations

import copy
import errno
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ray_history.collector.ingest.spool import Disk, Pending, Segment, Spool, SpoolFull
from ray_history.collector.ingest.spool import segment as segment_format

from .simulated_disk import OPERATIONS, Ended, SimulatedDisk

HEADER = 20
PREFIX = 12
LIMIT = 5_000
"""Bytes the spool of the model may use."""


def contents(spool: Spool) -> list[bytes]:
    spool.seal()
    return [body for segment in spool.sealed() for body in spool.read(segment)]


def reopened(directory: Path) -> list[bytes]:
    with closing(Spool(directory)) as spool:
        return contents(spool)


def ship(spool: Spool) -> list[bytes]:
    bodies: list[bytes] = []
    for segment in spool.sealed():
        bodies += spool.read(segment)
        spool.remove(segment)
    return bodies


def files(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(directory.iterdir())}


class Losing(RuleBasedStateMachine):
    """A spool on a disk that loses power, fills up and fails, against its promises.

    Bodies begin with a number that counts up, so the order of numbers is the order of appends.
    """

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.disk = SimulatedDisk(seed)
        self.now = 1_000
        self.numbers = itertools.count()
        self.appended: set[bytes] = set()
        self.promised: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.created: dict[int, int] = {}
        self.removed: dict[int, Segment] = {}
        self.spool: Spool | None = None
        self.open()

    def open(self) -> None:
        """Opening may fail as long as the disk does; on a healthy one it never fails."""
        failures_before = self.disk.failed
        try:
            self.spool = Spool(
                Path("/spool"), segment_bytes=500, max_bytes=LIMIT, clock=lambda: self.now, disk=self.disk
            )
        except Ended:
            self.spool = None
            return
        except OSError:
            self.spool = None
            if self.disk.failed == failures_before:
                raise
            return
        self.exact_size = self.disk.failed == failures_before
        self.failures_at_open = self.disk.failed

    @property
    def running(self) -> Spool:
        if self.spool is None:
            self.disk.heal()
            self.disk.kill()
            self.open()
        assert self.spool is not None
        return self.spool

    @contextmanager
    def ending(self) -> Iterator[None]:
        """The program may be killed inside; then the next one starts, sometimes after a power cut."""
        try:
            yield
        except Ended:
            self.spool = None
            self.restart(power=self.disk.chance.random() < 0.5)

    def restart(self, *, power: bool) -> None:
        if power:
            self.disk.cut_power()
        else:
            self.disk.kill()
        self.open()

    @rule(sizes=st.lists(st.integers(0, 120), min_size=1, max_size=5))
    def append(self, sizes: list[int]) -> None:
        spool = self.running
        bodies = [b"%08d" % next(self.numbers) + b"\xa5" * size for size in sizes]
        self.appended.update(bodies)
        before, failures = spool.pending, self.disk.failed
        needed = HEADER + sum(PREFIX + len(body) for body in bodies)
        with self.ending():
            try:
                spool.append(bodies)
            except (SpoolFull, OSError) as error:
                full = isinstance(error, SpoolFull)
                told = error.__cause__ if full else error
                number = told.errno if isinstance(told, OSError) else None
            else:
                self.promised.update(bodies)
                self.acknowledged.update(bodies)
                assert spool.pending == Pending(before.bodies + len(bodies), before.bytes + sum(map(len, bodies)))
                return
            assert spool.pending == before
            assert full == (number != errno.EIO)
            assert self.disk.failed > failures if number else spool.size + needed > LIMIT

    @rule(sizes=st.lists(st.integers(0, 120), min_size=1, max_size=5), operations=st.integers(0, 8))
    def append_and_end(self, sizes: list[int], operations: int) -> None:
        self.disk.end_program_after(operations)
        self.append(sizes)

    @rule()
    def seal(self) -> None:
        with self.ending():
            self.running.seal()

    @rule(count=st.integers(1, 4))
    def ship(self, count: int) -> None:
        spool = self.running
        with self.ending():
            for segment in spool.sealed()[:count]:
                try:
                    bodies = list(spool.read(segment))
                except OSError:
                    return
                self.promised.difference_update(bodies)
                try:
                    spool.remove(segment)
                except OSError:
                    return
                self.removed[segment.sequence] = segment
                assert segment.sequence not in {other.sequence for other in spool.sealed()}

    @precondition(lambda self: self.removed)
    @rule(chance=st.randoms())
    def remove_again(self, chance: random.Random) -> None:
        spool = self.running
        segment = chance.choice(list(self.removed.values()))
        with self.ending():
            before = spool.pending
            with suppress(OSError):
                spool.remove(segment)
            assert spool.pending == before

    @rule()
    def cut_power(self) -> None:
        self.restart(power=True)

    @rule()
    def kill(self) -> None:
        self.restart(power=False)

    @rule(operations=st.integers(0, 4), failing=st.sampled_from(["open", "write", "fsync"]), skip=st.integers(0, 1))
    def end_an_append_and_fail_to_open_once(self, operations: int, failing: str, skip: int) -> None:
        """With nothing left but a mark, and a younger header that may not be durable."""
        self.running.seal()
        self.ship(count=100)
        spool = self.running
        body = b"%08d" % next(self.numbers)
        self.appended.add(body)
        self.disk.end_program_after(operations)
        with suppress(Ended, OSError, SpoolFull):
            spool.append([body])
        self.disk.kill()
        self.disk.fail(failing, errno.EIO, skip)
        self.open()
        self.restart(power=False)

    @rule(operations=st.integers(0, 12))
    def kill_soon(self, operations: int) -> None:
        self.disk.end_program_after(operations)

    @rule(
        operations=st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=3),
        number=st.sampled_from([errno.EIO, errno.ENOSPC, errno.EDQUOT]),
        skip=st.integers(0, 3),
    )
    def fail_soon(self, operations: list[str], number: int, skip: int) -> None:
        for operation in operations:
            self.disk.fail(operation, number, skip)

    @rule(number=st.sampled_from([errno.EIO, errno.ENOSPC]), operation=st.sampled_from(["write", "fsync"]))
    def fail_an_append_and_its_repair(self, number: int, operation: str) -> None:
        self.disk.fail(operation, number)
        self.disk.fail("truncate", errno.EIO)

    @rule(room=st.integers(0, 300))
    def fill(self, room: int) -> None:
        self.disk.capacity = self.disk.used + room

    @rule()
    def free(self) -> None:
        self.disk.capacity = 1 << 30

    @rule(step=st.integers(-1_000, 1_000))
    def turn_clock(self, step: int) -> None:
        self.now = max(0, self.now + step)

    @rule()
    def everything_promised_is_there(self) -> None:
        """On a healthy disk: all that was promised comes out, once, in order, and more is taken."""
        self.disk.heal()
        spool = self.running
        spool.seal()
        found: list[bytes] = []
        for segment in spool.sealed():
            bodies = list(spool.read(segment))
            assert bodies, "an empty segment was offered"
            assert bodies == sorted(set(bodies)), "out of order, or twice"
            assert len(bodies) == segment.records
            assert segment.sequence not in self.removed, "a removed segment came back"
            known = self.created.get(segment.sequence)
            if known is None and self.acknowledged.intersection(bodies):
                assert segment.sequence > max(self.created, default=0), "a sequence went back"
            found += bodies
        assert len(found) == len(set(found))
        assert self.promised <= set(found) <= self.appended
        self.notice_segments()
        waiting = Pending(len(found), sum(map(len, found)))
        assert spool.pending.bodies == waiting.bodies
        assert spool.pending.bytes >= waiting.bytes, "damaged bytes between bodies are counted, too"
        self.append([10])
        if spool.size < LIMIT - 100:
            assert spool.pending.bodies == waiting.bodies + 1, "a healthy spool took nothing"

    @invariant()
    def segments_keep_their_identity(self) -> None:
        if self.spool is not None:
            self.notice_segments()

    def notice_segments(self) -> None:
        assert self.spool is not None
        segments = self.spool.sealed()
        assert segments == sorted(segments, key=lambda segment: segment.sequence)
        for segment in segments:
            assert self.created.setdefault(segment.sequence, segment.created_ns) == segment.created_ns
        times = [created for _, created in sorted(self.created.items())]
        assert times == sorted(set(times)), "creation times do not grow with sequences"

    @invariant()
    def the_size_is_what_is_on_the_disk(self) -> None:
        if self.spool is None:
            return
        assert self.disk.used <= self.spool.size <= LIMIT
        if self.exact_size and self.disk.failed == self.failures_at_open:
            assert self.disk.used == self.spool.size

    @invariant()
    def a_power_cut_now_would_lose_and_repeat_nothing(self) -> None:
        """Tried on a copy: a rare order of faults need not be followed by a power cut to be found wrong."""
        if self.spool is None:
            return
        disk = copy.deepcopy(self.disk)
        disk.heal()
        disk.cut_power()
        spool = Spool(Path("/spool"), disk=disk, clock=lambda: 0)
        assert self.promised <= set(contents(spool)) <= self.appended
        spool.append([b"next"])
        spool.seal()
        newest = spool.sealed()[-1]
        assert newest.sequence > max(self.created, default=0), "a sequence would repeat"
        assert newest.created_ns > max(self.created.values(), default=0), "a creation time would repeat"

    def teardown(self) -> None:
        if hasattr(self, "disk"):
            self.restart(power=True)
            self.everything_promised_is_there()


TestLosing = Losing.TestCase
TestLosing.settings = settings(
    max_examples=int(os.environ.get("SPOOL_EXAMPLES", "200")),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_bodies_come_out_in_order_after_reopening(tmp_path: Path) -> None:
    with closing(Spool(tmp_path / "made" / "spool")) as spool:
        spool.append([b"one", b"", b"three"])
        spool.append([b"four"])
        assert spool.pending == Pending(4, 12)
        assert spool.sealed() == []
    with closing(Spool(tmp_path / "made" / "spool")) as spool:
        (segment,) = spool.sealed()
        assert list(spool.read(segment)) == [b"one", b"", b"three", b"four"]
        assert (segment.records, segment.size) == (4, HEADER + 4 * PREFIX + 12)
        assert spool.size == segment.size
        assert spool.problems == []


def test_big_bodies(tmp_path: Path) -> None:
    bodies = [random.Random(i).randbytes(20_000_000) for i in range(3)]
    with closing(Spool(tmp_path)) as spool:
        for body in bodies:
            spool.append([body])
        assert len(spool.sealed()) == 2
        assert contents(spool) == bodies
    assert reopened(tmp_path) == bodies


def test_many_small_bodies_in_one_append(tmp_path: Path) -> None:
    bodies = [b"%d" % i for i in range(20_000)]
    with closing(Spool(tmp_path)) as spool:
        spool.append(bodies)
        assert contents(spool) == bodies
    assert reopened(tmp_path) == bodies


def test_a_segment_ends_before_it_gets_too_large(tmp_path: Path) -> None:
    with closing(Spool(tmp_path, segment_bytes=1_000)) as spool:
        for _ in range(10):
            spool.append([bytes(300)])
        spool.seal()
        assert [segment.records for segment in spool.sealed()] == [3, 3, 3, 1]
        assert all(segment.size <= 1_000 for segment in spool.sealed())


def test_appending_nothing_makes_nothing(tmp_path: Path) -> None:
    with closing(Spool(tmp_path)) as spool:
        spool.append([])
        spool.seal()
        assert (spool.sealed(), spool.size, spool.oldest_ns, spool.pending) == ([], 0, None, Pending(0, 0))


def test_sequence_and_creation_time_grow_when_all_was_removed_and_the_clock_stepped_back(tmp_path: Path) -> None:
    seen = []
    for now in (5_000, 4_000, 6_000, 1_000):
        with closing(Spool(tmp_path, clock=iter([now]).__next__)) as spool:
            assert spool.sealed() == []
            spool.append([b"x"])
            spool.seal()
            (segment,) = spool.sealed()
            assert spool.oldest_ns == segment.created_ns
            seen.append((segment.sequence, segment.created_ns))
            assert ship(spool) == [b"x"]
            assert spool.oldest_ns is None
    assert seen == [(1, 5_000), (2, 5_001), (3, 6_000), (4, 6_001)]
    assert list(files(tmp_path).values()) == [HEADER]


def test_removing_again_is_harmless(tmp_path: Path) -> None:
    with closing(Spool(tmp_path)) as spool:
        spool.append([b"one"])
        spool.seal()
        (first,) = spool.sealed()
        spool.remove(first)
        spool.remove(first)
        spool.append([b"two"])
        spool.remove(first)
        assert contents(spool) == [b"two"]
        assert spool.size == sum(files(tmp_path).values())


def test_appending_and_shipping_at_the_same_time(tmp_path: Path) -> None:
    bodies = [b"%06d" % i + bytes(i % 3_000) for i in range(1_500)]
    shipped: list[bytes] = []
    done = threading.Event()
    with closing(Spool(tmp_path, segment_bytes=50_000)) as spool:

        def keep_shipping() -> None:
            while not done.is_set():
                spool.seal()
                shipped.extend(ship(spool))

        shipper = threading.Thread(target=keep_shipping)
        shipper.start()
        try:
            for start in range(0, len(bodies), 5):
                spool.append(bodies[start : start + 5])
        finally:
            done.set()
            shipper.join()
        spool.seal()
        shipped += ship(spool)
        assert shipped == bodies
        assert spool.pending == Pending(0, 0)
        assert spool.size == sum(files(tmp_path).values())
    assert reopened(tmp_path) == []


def test_a_slow_sync_does_not_hold_up_the_shipper(tmp_path: Path) -> None:
    class SlowDisk(Disk):
        syncing = threading.Event()
        go_on = threading.Event()
        slow = False

        def fsync(self, handle: int) -> None:
            if self.slow and threading.current_thread() is not threading.main_thread():
                self.syncing.set()
                assert self.go_on.wait(10)
            super().fsync(handle)

    disk = SlowDisk()
    with closing(Spool(tmp_path, disk=disk)) as spool:
        spool.append([b"one"])
        spool.seal()
        disk.slow = True
        appender = threading.Thread(target=spool.append, args=([b"two"],))
        appender.start()
        assert disk.syncing.wait(10)
        assert ship(spool) == [b"one"]
        assert (spool.sealed(), spool.pending, spool.oldest_ns) == ([], Pending(0, 0), None)
        disk.go_on.set()
        appender.join()
        assert contents(spool) == [b"two"]


def test_any_flipped_byte_lets_no_wrong_body_out_and_loses_only_its_own(tmp_path: Path) -> None:
    bodies = [b"first", b"", b"the second body", b"third"]
    with closing(Spool(tmp_path)) as spool:
        spool.append(bodies)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    aside = path.with_name(path.name + ".corrupt")
    starts = [HEADER + sum(PREFIX + len(body) for body in bodies[:i]) for i in range(len(bodies))]
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        hit = sum(start <= position for start in starts) - 1
        expected = bodies[:hit] + bodies[hit + 1 :] if position >= HEADER else []
        with closing(Spool(tmp_path)) as spool:
            assert ship(spool) == expected
            assert len(spool.problems) == 1
            assert spool.size == len(whole)
            spool.append([b"later"])
            assert contents(spool) == [b"later"]
            (later,) = spool.sealed()
            assert later.sequence == 2
        assert aside.read_bytes() == damaged
        later.path.unlink()
        aside.unlink()


def test_a_byte_that_flips_while_the_spool_is_open(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(Spool(tmp_path)) as spool:
        spool.append([b"one", b"two", b"three"])
        spool.seal()
        (segment,) = spool.sealed()
        data = bytearray(segment.path.read_bytes())
        data[data.index(b"two")] ^= 1
        segment.path.write_bytes(data)
        assert list(spool.read(segment)) == [b"one", b"three"]
        assert list(spool.read(segment)) == [b"one", b"three"]
        assert list(spool.peek(segment, 0)) == [b"one", b"three"]
        assert spool.is_damaged(segment)
        spool.remove(segment)
        spool.remove(segment)
        assert files(tmp_path) == {segment.path.name + ".corrupt": len(data)}
        assert spool.size == len(data)
        (problem,) = spool.problems
        assert "damaged at byte 35 of 67" in problem
        assert problem in caplog.text


@pytest.mark.parametrize("size", [10, 3_000_000, 20_000_000])
def test_records_behind_a_damaged_length_are_found_in_other_bytes(tmp_path: Path, size: int) -> None:
    binary = random.Random(size).randbytes(size)
    with closing(Spool(tmp_path, segment_bytes=1 << 30)) as spool:
        spool.append([b"[1]", binary, b"[2]", b"[3]"])
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[HEADER + PREFIX + 3] ^= 1
    path.write_bytes(data)
    assert reopened(tmp_path) == [b"[1]", b"[2]", b"[3]"]


def test_the_creation_time_grows_past_that_of_a_corrupt_segment(tmp_path: Path) -> None:
    with closing(Spool(tmp_path, clock=lambda: 5_000)) as spool:
        spool.append([b"one", b"two"])
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes().replace(b"two", b"owt"))
    with closing(Spool(tmp_path)) as spool:
        assert ship(spool) == [b"one"]
    with closing(Spool(tmp_path, clock=lambda: 3)) as spool:
        spool.append([b"three"])
        spool.seal()
        assert [(segment.sequence, segment.created_ns) for segment in spool.sealed()] == [(2, 5_001)]


def test_corrupt_segments_stay_and_count(tmp_path: Path) -> None:
    aside = tmp_path / f"{7:020d}.spool.corrupt"
    aside.write_bytes(bytes(100))
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "lost+found").mkdir()
    with closing(Spool(tmp_path, max_bytes=200)) as spool:
        assert spool.size == 104
        assert len(spool.problems) == 2
        with pytest.raises(SpoolFull):
            spool.append([bytes(90)])
        spool.append([bytes(20)])
        spool.seal()
        assert [segment.sequence for segment in spool.sealed()] == [8]
        ship(spool)
    assert aside.exists()
    assert (tmp_path / "notes.txt").exists()


def test_a_segment_cut_anywhere_gives_the_bodies_that_are_whole(tmp_path: Path) -> None:
    bodies = [b"first", b"second"]
    with closing(Spool(tmp_path)) as spool:
        spool.append(bodies)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for length in range(len(whole)):
        for rest in (b"", bytes(30)):
            path.write_bytes(whole[:length] + rest)
            with closing(Spool(tmp_path)) as spool:
                found = contents(spool)
                assert found == bodies[: len(found)]
                assert len(found) == (length >= HEADER + PREFIX + 5)
                if rest == b"":
                    assert not any(name.endswith(".corrupt") for name in files(tmp_path))
                    assert len(spool.problems) == (length not in (HEADER, HEADER + PREFIX + 5))
            for left in tmp_path.iterdir():
                left.unlink()


def test_a_full_spool_takes_more_after_shipping(tmp_path: Path) -> None:
    with closing(Spool(tmp_path, segment_bytes=1_000, max_bytes=3_000)) as spool:
        for _ in range(5):
            spool.append([bytes(500)])
        with pytest.raises(SpoolFull, match="has 2660 of at most 3000 bytes"):
            spool.append([bytes(500)])
        assert sum(files(tmp_path).values()) == spool.size == 2_660
        spool.remove(spool.sealed()[0])
        spool.append([bytes(500)])
        assert spool.pending == Pending(5, 2_500)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("operation", ["open", "write", "fsync"])
def test_a_full_disk_is_reported_and_costs_no_acknowledged_body(operation: str, number: int) -> None:
    for skip in range(4):
        disk = SimulatedDisk()
        spool = Spool(Path("/spool"), disk=disk)
        disk.fail(operation, number, skip)
        acknowledged = []
        for body in (b"1", b"2", b"3", b"4"):
            try:
                spool.append([body])
            except SpoolFull:
                assert disk.failed
            else:
                acknowledged.append(body)
        disk.heal()
        assert contents(spool) == acknowledged


def test_a_failed_append_is_truncated_and_the_next_fits() -> None:
    disk = SimulatedDisk()
    spool = Spool(Path("/spool"), disk=disk)
    spool.append([b"before"])
    used = disk.used
    disk.capacity = used + 1_000
    with pytest.raises(SpoolFull, match="No space left"):
        spool.append([bytes(2_000)])
    assert disk.used == spool.size == used
    spool.append([b"after"])
    assert contents(spool) == [b"before", b"after"]


@pytest.mark.parametrize("ship_first", [True, False])
def test_no_sequence_repeats_when_power_goes_after_a_kill_while_a_segment_was_made(ship_first: bool) -> None:
    for operations, seed in itertools.product(range(6), range(40)):
        disk = SimulatedDisk(seed)
        spool = Spool(Path("/spool"), disk=disk, clock=lambda: 5_000)
        spool.append([b"one"])
        spool.seal()
        if ship_first:
            ship(spool)
        disk.end_program_after(operations)
        with suppress(Ended):
            spool.append([b"two"])
        disk.kill()
        spool = Spool(Path("/spool"), disk=disk)
        if not ship_first:
            ship(spool)
        disk.cut_power()
        spool = Spool(Path("/spool"), disk=disk, clock=lambda: 3)
        spool.append([b"three"])
        spool.seal()
        newest = spool.sealed()[-1]
        assert newest.sequence >= 2
        assert newest.created_ns > 5_000


def test_no_sequence_repeats_when_power_goes_after_a_segment_could_not_be_made() -> None:
    for skip, seed in itertools.product(range(3), range(40)):
        disk = SimulatedDisk(seed)
        spool = Spool(Path("/spool"), disk=disk, clock=lambda: 5_000)
        spool.append([b"one"])
        spool.seal()
        disk.fail("fsync", errno.EIO, skip)
        with pytest.raises(OSError, match="Input/output error"):
            spool.append([b"two"])
        ship(spool)
        disk.cut_power()
        spool = Spool(Path("/spool"), disk=disk, clock=lambda: 3)
        spool.append([b"three"])
        spool.seal()
        newest = spool.sealed()[-1]
        assert newest.sequence >= 2
        assert newest.created_ns > 5_000


@pytest.mark.parametrize("ship_first", [True, False])
def test_no_sequence_repeats_when_power_goes_after_opening_failed_and_was_tried_again(ship_first: bool) -> None:
    for operations, skip, seed in itertools.product(range(6), range(2), range(40)):
        disk = SimulatedDisk(seed)
        spool = Spool(Path("/spool"), disk=disk, clock=lambda: 5_000)
        spool.append([b"one"])
        spool.seal()
        if ship_first:
            ship(spool)
        disk.end_program_after(operations)
        with suppress(Ended):
            spool.append([b"two"])
        disk.kill()
        disk.fail("fsync", errno.EIO, skip)
        with pytest.raises(OSError, match="Input/output error"):
            Spool(Path("/spool"), disk=disk)
        spool = Spool(Path("/spool"), disk=disk, clock=lambda: 5_000)
        last = max([(1, 5_000), *((segment.sequence, segment.created_ns) for segment in spool.sealed())])
        ship(spool)
        disk.cut_power()
        spool = Spool(Path("/spool"), disk=disk, clock=lambda: 3)
        spool.append([b"three"])
        spool.seal()
        newest = spool.sealed()[-1]
        assert newest.sequence > last[0]
        assert newest.created_ns > last[1]


def test_opening_on_a_full_disk_returns_existing_segments() -> None:
    disk = SimulatedDisk()
    Spool(Path("/spool"), disk=disk).append([b"one"])
    disk.capacity = disk.used
    disk.kill()
    spool = Spool(Path("/spool"), disk=disk)
    assert ship(spool) == [b"one"]
    assert disk.failed == 0


def test_a_segment_someone_deleted_can_be_removed(tmp_path: Path) -> None:
    with closing(Spool(tmp_path, segment_bytes=1)) as spool:
        spool.append([b"one"])
        spool.append([b"two"])
        spool.seal()
        for segment in spool.sealed():
            segment.path.unlink()
            with pytest.raises(FileNotFoundError):
                list(spool.read(segment))
            spool.remove(segment)
        assert (spool.sealed(), spool.size) == ([], 0)
        spool.append([b"three"])
        assert contents(spool) == [b"three"]


def test_nothing_is_appended_to_a_segment_whose_sync_failed() -> None:
    disk = SimulatedDisk()
    spool = Spool(Path("/spool"), disk=disk)
    spool.append([b"before"])
    disk.fail("fsync", errno.EIO)
    with pytest.raises(OSError, match="Input/output error"):
        spool.append([b"refused"])
    spool.append([b"after"])
    spool.seal()
    assert [list(spool.read(segment)) for segment in spool.sealed()] == [[b"before"], [b"after"]]


def test_a_directory_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        Spool(tmp_path / "file")
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)  # root may write anywhere
        try:
            with pytest.raises(PermissionError, match="cannot write to the spool directory"):
                Spool(Path(name))
        finally:
            os.seteuid(user)
            Path(name).chmod(0o700)


def test_two_processes_cannot_share_a_spool(tmp_path: Path) -> None:
    with closing(Spool(tmp_path)), pytest.raises(BlockingIOError, match="Another process"):
        Spool(tmp_path)
    Spool(tmp_path).close()


def test_a_closed_spool_takes_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.append([b"x"])
    spool.close()
    spool.close()
    with pytest.raises(ValueError, match="closed"):
        spool.append([b"y"])
    assert reopened(tmp_path) == [b"x"]


def test_a_body_larger_than_the_format_takes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_format, "MAX_BODY", 10)
    with closing(Spool(tmp_path)) as spool:
        with pytest.raises(ValueError, match="11 bytes"):
            spool.append([bytes(11)])
        spool.append([bytes(10)])
        assert contents(spool) == [bytes(10)]


APPENDER = """
import os, sys, threading
from pathlib import Path
from ray_history.collector.ingest.spool import Spool

spool = Spool(Path(sys.argv[1]), segment_bytes=300_000)
number = int(sys.argv[2])

def keep_sealing():
    while True:
        spool.seal()

threading.Thread(target=keep_sealing, daemon=True).start()
while True:
    bodies = [b"%010d" % (number + i) + bytes((number + i) * 7919 % 60_000) for i in range(3)]
    spool.append(bodies)
    number += len(bodies)
    os.write(1, b"%010d" % number)
"""


def test_a_killed_process_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(1)
    shipped: set[int] = set()
    first = acknowledged = 0
    for _ in range(10):
        child = subprocess.Popen([sys.executable, "-c", APPENDER, str(tmp_path), str(first)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        with child.stdout:
            output = child.stdout.read(10)  # it runs
            time.sleep(chance.uniform(0, 0.15))
            child.send_signal(signal.SIGKILL)
            output += child.stdout.read()
        assert child.wait(10) == -signal.SIGKILL
        acknowledged = int(output[-10:])
        with closing(Spool(tmp_path)) as spool:
            found = []
            for segment in spool.sealed():
                for body in spool.read(segment):
                    assert len(body) == 10 + int(body[:10]) * 7919 % 60_000
                    found.append(int(body[:10]))
                spool.remove(segment)
        assert found == sorted(set(found))
        shipped.update(found)
        assert set(range(first, acknowledged)) <= shipped
        first = max(acknowledged, *found) + 1
    assert acknowledged > 30
