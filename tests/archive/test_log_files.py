"""Log files are listed, found and read from whole objects and tails, with few requests and little memory."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_history.archive import log_files as module
from ray_history.archive.errors import ArchiveError, NotFound, Unreachable
from ray_history.archive.log_files import LogFile, LogFiles, LogReader
from ray_history.archive.log_tails import FIRST_READ, BundleWriter, header_size, parse_header
from ray_history.archive.stores.interface import READ_CHUNK, Level, ObjectInfo, Store

START = datetime(2026, 11, 15, 20, 0, 55, tzinfo=UTC)
NODE = "aa" * 28
KIB = 1024
MIB = 1024 * 1024


class MemoryStandIn:
    """Stands in for a store until the real `memory://` one is used here."""

    url = "memory://"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.times: dict[str, datetime] = {}

    def check(self, *, create: bool = False) -> None:
        return

    def put(self, key: str, data: bytes) -> None:
        self.objects[key] = data
        self.times[key] = START + timedelta(seconds=len(self.times))

    def put_stream(self, key: str, source: BinaryIO | Iterable[bytes]) -> int:
        self.put(key, b"".join(source))
        return len(self.objects[key])

    def create(self, key: str, data: bytes) -> bool:
        if key in self.objects:
            return False
        self.put(key, data)
        return True

    def get(self, key: str) -> bytes:
        if key not in self.objects:
            raise NotFound(f"no object {key}")
        return self.objects[key]

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.get(key)[start : start + length]

    def stream(self, key: str, start: int = 0) -> Iterator[bytes]:
        data = self.get(key)
        for position in range(start, len(data), READ_CHUNK):
            yield data[position : position + READ_CHUNK]

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        for key in sorted(self.objects):
            if key.startswith(prefix):
                yield self.head(key)

    def list_level(self, prefix: str = "") -> Level:
        return Level((), tuple(self.list(prefix)))

    def head(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, len(self.get(key)), self.times[key])

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)

    def delete_many(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.delete(key)


class Counting:
    """A store that counts requests."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.requests: Counter[str] = Counter()
        self.bytes_read = 0

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            self.requests[name] += 1
            result = operation(*arguments, **options)
            if name == "stream":
                return self._counted_stream(result)
            if isinstance(result, bytes):
                self.bytes_read += len(result)
            return result

        return counted

    def _counted_stream(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.bytes_read += len(chunk)
            yield chunk


class Session:
    """A session in a store, as written by a collector and listed."""

    def __init__(self, store: Store | None = None) -> None:
        self.store: Store = store or MemoryStandIn()
        self.counting = Counting(self.store)
        self.sequence = 0

    def whole(self, name: str, data: bytes, node: str = NODE) -> None:
        self.store.put(f"logs/{node}/{name}", data)

    def tail(self, *runs: tuple[str, int, int, bytes], node: str = NODE) -> str:
        writer = BundleWriter()
        for run in runs:
            writer.add(*run)
        self.sequence += 1
        key = f"history-tails/{node}/{self.sequence:012}"
        self.store.put(key, writer.finish())
        return key

    def log_files(self) -> LogFiles:
        whole = [(*info.key.removeprefix("logs/").partition("/")[::2], info) for info in self.store.list("logs/")]
        bundles = [(info.key.split("/")[1], info) for info in self.store.list("history-tails/")]
        return LogFiles(cast(Store, self.counting), whole, bundles)

    def reader(self, name: str) -> LogReader:
        files = self.log_files()
        return files.open(files.find(NODE, name))

    def reset_counts(self) -> None:
        self.counting.requests.clear()
        self.counting.bytes_read = 0


def last_lines(reader: LogReader, count: int) -> bytes:
    return b"".join(reader.last_lines(count))


def numbered_lines(count: int) -> bytes:
    return b"".join(b"line %09d of a log that is long enough to matter\n" % number for number in range(count))


# Listing and finding


def test_a_node_is_known_by_its_whole_logs_or_by_its_tails() -> None:
    session = Session()
    session.whole("raylet.out", b"x", node="bb")
    session.tail(("raylet.out", 1, 0, b"y"), node="aa")
    assert list(session.log_files().nodes()) == ["aa", "bb"]


def test_files_are_listed_by_name_with_size_and_time_from_both_sources() -> None:
    session = Session()
    session.whole("raylet.out", b"12345")
    session.whole("events/event_GCS.log", b"1")
    session.tail(("raylet.out", 1, 5, b"678"), ("worker-1.out", 1, 0, b"new"))
    files = session.log_files().list(NODE)
    assert [(file.name, file.size, file.modified) for file in files] == [
        ("events/event_GCS.log", 1, START + timedelta(seconds=1)),
        ("raylet.out", 8, START + timedelta(seconds=2)),
        ("worker-1.out", 3, START + timedelta(seconds=2)),
    ]


def test_an_unknown_node_is_not_an_empty_list() -> None:
    session = Session()
    session.whole("raylet.out", b"x")
    with pytest.raises(NotFound, match="no logs of node 'ff'; it has logs of 1 nodes"):
        session.log_files().list("ff")


@pytest.mark.parametrize("name", ["nothing.log", "../aa/raylet.out", "/etc/passwd", "", "old/", "raylet.out/", "."])
def test_a_name_that_is_not_in_the_listing_is_not_found_and_asks_nothing_of_the_store(name: str) -> None:
    session = Session()
    session.whole("raylet.out", b"x")
    with pytest.raises(NotFound, match="list the node's logs for the names of its 1 files"):
        session.log_files().find(NODE, name)
    assert not session.counting.requests


def test_a_worker_log_is_found_where_ray_moved_it_under_either_name() -> None:
    session = Session()
    session.whole("old/worker-1.out", b"moved")
    session.whole("worker-2.out", b"stayed")
    files = session.log_files()
    for asked, found in {
        "worker-1.out": "old/worker-1.out",
        "old/worker-1.out": "old/worker-1.out",
        "worker-2.out": "worker-2.out",
        "old/worker-2.out": "worker-2.out",
    }.items():
        assert files.find(NODE, asked).name == found


def test_of_a_log_before_and_after_its_move_the_longer_one_is_complete() -> None:
    session = Session()
    session.tail(("worker-1.out", 1, 0, b"begun"))
    session.whole("old/worker-1.out", b"begun and finished")
    session.whole("worker-2.out", b"begun and finished")
    session.whole("old/worker-2.out", b"begun")
    files = session.log_files()
    assert {files.find(NODE, name).name for name in ("worker-1.out", "old/worker-1.out")} == {"old/worker-1.out"}
    assert {files.find(NODE, name).name for name in ("worker-2.out", "old/worker-2.out")} == {"worker-2.out"}


def test_a_log_in_two_layouts_is_listed_once_with_its_longer_copy() -> None:
    store = MemoryStandIn()
    store.put("a", b"short")
    store.put("b", b"longer")
    files = LogFiles(store, [(NODE, "x.log", store.head("b")), (NODE, "x.log", store.head("a"))], [])
    assert [file.whole for file in files.list(NODE)] == [store.head("b")]


def test_older_files_behind_a_name_are_offered_apart_newest_first() -> None:
    session = Session()
    session.tail(("raylet.out", 1, 0, b"first"))
    session.tail(("raylet.out", 2, 0, b"second"))
    session.tail(("raylet.out", 3, 0, b"third"))
    files = session.log_files()
    newest = files.find(NODE, "raylet.out")
    assert files.open(newest).read(0, 100) == b"third"
    assert [files.open(older).read(0, 100) for older in files.earlier(newest)] == [b"second", b"first"]


# What listing costs, and what it survives


def test_headers_are_read_lazily_once_and_only_of_the_requested_node() -> None:
    session = Session()
    for number in range(40):
        session.tail(("raylet.out", 1, 10 * number, b"0123456789"))
        session.tail(("raylet.out", 1, 10 * number, b"0123456789"), node="bb")
    files = session.log_files()
    assert list(files.nodes()) == [NODE, "bb"]
    assert not session.counting.requests
    files.list(NODE)
    files.find(NODE, "raylet.out")
    files.list(NODE)
    assert session.counting.requests == {"get_range": 40}


def test_a_long_header_costs_one_more_read_and_no_log_bytes() -> None:
    session = Session()
    noise = bytes(range(256)) * 16
    key = session.tail(*((f"worker-{number:056x}.out", 1, 0, noise) for number in range(1000)))
    bundle = session.store.get(key)
    assert header_size(bundle) > FIRST_READ
    assert len(session.log_files().list(NODE)) == 1000
    assert session.counting.requests == {"get_range": 2}
    assert session.counting.bytes_read == header_size(bundle)


def test_a_corrupt_bundle_is_reported_and_the_others_are_read() -> None:
    session = Session()
    session.tail(("raylet.out", 1, 0, b"first "))
    for damage in (b"", b"garbage that is no bundle at all"):
        session.store.put(session.tail(("raylet.out", 1, 6, b"lost")), damage)
    session.tail(("raylet.out", 1, 10, b" last"))
    files = session.log_files()
    reader = files.open(files.find(NODE, "raylet.out"))
    assert (reader.read(0, 100), reader.gaps, reader.size) == (b"first  last", ((6, 10),), 15)
    assert sorted(files.problems) == [
        f"log tails history-tails/{NODE}/000000000002 were not used: it has only 0 bytes",
        f"log tails history-tails/{NODE}/000000000003 were not used: it is not a bundle of log tails",
    ]


def test_a_bundle_deleted_after_it_was_listed_is_no_problem() -> None:
    session = Session()
    session.whole("raylet.out", b"all of it")
    key = session.tail(("raylet.out", 1, 0, b"all"))
    files = session.log_files()
    session.store.delete(key)
    assert files.open(files.find(NODE, "raylet.out")).read(0, 100) == b"all of it"
    assert files.problems == []


def test_a_store_that_cannot_be_reached_is_not_taken_for_a_missing_bundle() -> None:
    class Broken(MemoryStandIn):
        def get_range(self, key: str, start: int, length: int) -> bytes:
            raise Unreachable("no answer")

    session = Session(Broken())
    session.tail(("raylet.out", 1, 0, b"x"))
    session.tail(("raylet.out", 1, 1, b"y"))
    with pytest.raises(Unreachable):
        session.log_files().list(NODE)


# Reading


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_range_and_any_number_of_lines_equal_those_of_the_original_file(data: st.DataObject) -> None:
    content = data.draw(
        st.lists(st.sampled_from([b"\n", b"a", b"line\n", b"longer line\n"]), max_size=60).map(b"".join)
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    session = Session()
    session.whole("a.log", content[: cuts[0]] if cuts else content)
    for start, end in zip(cuts, [*cuts[1:], len(content)], strict=False):
        session.tail(("b.log", 1, 0, b"other"), ("a.log", 1, start, content[start:end]))
    reader = session.reader("a.log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_FIRST_BLOCK", data.draw(st.integers(1, 40)))
        patch.setattr(module, "READ_CHUNK", data.draw(st.integers(1, 40)))
        patch.setattr(module, "_FRAMES_HELD", data.draw(st.integers(1, 40)))
        start, end = data.draw(st.integers(-2, len(content) + 2)), data.draw(st.integers(-2, len(content) + 2))
        assert reader.size == len(content)
        assert reader.read(start, end) == content[max(start, 0) : max(end, 0)]
        lines = data.draw(st.integers(-1, 70))
        expected = content.splitlines(keepends=True)
        assert last_lines(reader, lines) == b"".join(expected[-lines:] if lines > 0 else expected if lines else [])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 120), st.binary(min_size=1, max_size=30)), min_size=1, max_size=10),
    st.sets(st.integers(0, 9)),
    st.integers(-1, 20),
)
def test_gaps_and_damaged_frames_are_left_out_and_shift_nothing(
    runs: list[tuple[int, bytes]], damaged: set[int], lines: int
) -> None:
    original = bytes(10 if n % 7 == 0 else 97 + n % 26 for n in range(150))
    session = Session()
    readable: set[int] = set()
    size = 0
    for index, (offset, data) in enumerate(runs):
        end = offset + len(data)
        key = session.tail(("a.log", 1, offset, original[offset:end]))
        size = max(size, end)
        if index in damaged:
            bundle = bytearray(session.store.get(key))
            bundle[parse_header(bytes(bundle))[0].position] ^= 0xFF
            session.store.put(key, bytes(bundle))
        else:
            readable.update(range(offset, end))
    known = bytes(original[n] for n in sorted(readable))
    files = session.log_files()
    reader = files.open(files.find(NODE, "a.log"))
    expected = known.splitlines(keepends=True)
    wanted = expected[-lines:] if lines > 0 else expected if lines else []
    assert last_lines(reader, lines) == b"".join(wanted)
    assert b"".join(reader.stream()) == known
    assert {n for gap in reader.gaps for n in range(*gap)} == set(range(size)) - readable
    assert reader.size == size
    for start in sorted(readable)[:5]:
        assert reader.read(start, start + 1) == original[start : start + 1]


def test_a_whole_object_left_beside_its_tails_costs_one_comparison() -> None:
    session = Session()
    content = numbered_lines(1000)
    session.whole("a.log", content[:40000])
    for start in range(0, len(content), 10000):
        session.tail(("a.log", 1, start, content[start : start + 10000]))
    files = session.log_files()
    log_file = files.find(NODE, "a.log")
    session.reset_counts()
    reader = files.open(log_file)
    assert session.counting.requests == {"get_range": 1}
    assert session.counting.bytes_read == 10000
    assert reader.read(0, 10**9) == content


def test_a_whole_object_of_a_replaced_file_is_not_mixed_with_the_new_one() -> None:
    session = Session()
    session.whole("a.log", b"old " * 100)
    session.tail(("a.log", 2, 0, b"new lines\n"))
    reader = session.reader("a.log")
    assert (reader.size, reader.read(0, 1000)) == (10, b"new lines\n")


def test_the_last_lines_of_a_large_log_cost_two_small_reads() -> None:
    session = Session()
    content = numbered_lines(1_000_000)
    session.whole("a.log", content)
    reader = session.reader("a.log")
    assert last_lines(reader, 100) == b"".join(content[-10000:].splitlines(keepends=True)[-100:])
    assert session.counting.requests == {"get_range": 2}
    assert session.counting.bytes_read < 2 * 64 * KIB


def test_many_last_lines_are_found_in_growing_blocks() -> None:
    session = Session()
    content = numbered_lines(500_000)
    session.whole("a.log", content)
    reader = session.reader("a.log")
    start = reader.line_start(200_000)
    assert content[start:].count(b"\n") == 200_000
    assert content[start - 1 : start] == b"\n"
    assert session.counting.requests["get_range"] <= 10


def test_a_line_without_newline_at_the_end_is_a_line() -> None:
    session = Session()
    session.whole("a.log", b"one\ntwo\nthr")
    reader = session.reader("a.log")
    assert [last_lines(reader, count) for count in (0, 1, 2, 3, 4, -1)] == [
        b"",
        b"thr",
        b"two\nthr",
        b"one\ntwo\nthr",
        b"one\ntwo\nthr",
        b"one\ntwo\nthr",
    ]


def test_one_line_of_a_gibibyte_is_found_and_streamed_without_holding_it() -> None:
    size = 1024 * MIB

    class LongLineStandIn(MemoryStandIn):
        def get_range(self, key: str, start: int, length: int) -> bytes:
            return b"x" * min(length, size - start)

        def stream(self, key: str, start: int = 0) -> Iterator[bytes]:
            for position in range(start, size, READ_CHUNK):
                yield b"x" * min(READ_CHUNK, size - position)

    whole = ObjectInfo("logs/a.log", size, START)
    counting = Counting(LongLineStandIn())
    reader = LogFiles(cast(Store, counting), [], []).open(LogFile(NODE, "a.log", size, START, whole, ()))
    tracemalloc.start()
    try:
        assert sum(map(len, reader.last_lines(1))) == size
        assert tracemalloc.get_traced_memory()[1] < 3 * READ_CHUNK
    finally:
        tracemalloc.stop()
    assert counting.requests["stream"] == 1
    assert counting.requests["get_range"] < size // READ_CHUNK + 10


def test_a_stream_of_a_large_range_stops_at_its_end() -> None:
    session = Session()
    content = numbered_lines(600_000)
    session.whole("a.log", content)
    reader = session.reader("a.log")
    assert b"".join(reader.stream(1000, 5 * MIB)) == content[1000 : 5 * MIB]
    assert session.counting.requests == {"stream": 1}
    assert session.counting.bytes_read <= 2 * READ_CHUNK


def test_frames_are_fetched_once_for_finding_and_showing_the_last_lines() -> None:
    session = Session()
    content = numbered_lines(3000)
    for start in range(0, len(content), 1000):
        session.tail(("a.log", 1, start, content[start : start + 1000]))
    files = session.log_files()
    reader = files.open(files.find(NODE, "a.log"))
    session.reset_counts()
    assert last_lines(reader, 500) == b"".join(content.splitlines(keepends=True)[-500:])
    assert session.counting.requests["get_range"] <= 64 * KIB // 1000 + 2


def test_long_tails_are_streamed_with_few_frames_in_memory() -> None:
    session = Session()
    piece = bytes(range(256)) * 4 * KIB
    for number in range(48):
        session.tail(("a.log", 1, number * len(piece), piece))
    reader = session.reader("a.log")
    tracemalloc.start()
    try:
        assert sum(map(len, reader.stream())) == 48 * len(piece)
        assert tracemalloc.get_traced_memory()[1] < 6 * READ_CHUNK
    finally:
        tracemalloc.stop()


def test_two_streams_of_one_reader_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FRAMES_HELD", 1)
    session = Session()
    for number in range(10):
        session.tail(("a.log", 1, number, b"%d" % number))
    reader = session.reader("a.log")
    assert [one + other for one, other in zip(reader.stream(), reader.stream(), strict=True)] == [
        b"%d%d" % (number, number) for number in range(10)
    ]


def test_a_tail_that_vanishes_while_it_is_read_says_to_list_again() -> None:
    session = Session()
    key = session.tail(("a.log", 1, 0, b"bytes"))
    reader = session.reader("a.log")
    session.store.delete(key)
    with pytest.raises(
        NotFound, match=r"log a\.log was uploaded as a whole object while its tails were read; list the logs again"
    ):
        reader.read(0, 5)


def test_a_whole_object_that_became_shorter_is_an_error_not_a_shorter_log() -> None:
    session = Session()
    session.whole("a.log", b"long enough")
    reader = session.reader("a.log")
    session.whole("a.log", b"short")
    with pytest.raises(ArchiveError, match="became shorter"):
        reader.read(0, 11)


def test_an_empty_log_is_empty() -> None:
    session = Session()
    session.whole("a.log", b"")
    reader = session.reader("a.log")
    assert (reader.size, reader.gaps, last_lines(reader, 10), list(reader.stream())) == (0, (), b"", [])
