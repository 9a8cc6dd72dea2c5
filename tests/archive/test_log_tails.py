"""Bundles keep bytes exactly, refuse damage, and stitch back into the file they came from."""

from __future__ import annotations

import os
import random
import zlib
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ray_history.archive import log_tails
from ray_history.archive.log_tails import (
    FIRST_READ,
    MAX_ENTRY,
    BundleWriter,
    CorruptBundle,
    Entry,
    Plan,
    Tail,
    header_size,
    parse_header,
    portable_path,
    read_entry,
    stitch,
)


def bundle_of(*runs: tuple[str, int, int, bytes]) -> bytes:
    writer = BundleWriter()
    for path, generation, offset, data in runs:
        writer.add(path, generation, offset, data)
    return writer.finish()


def entry_bytes(bundle: bytes, entry: Entry) -> bytes:
    return read_entry(entry, bundle[entry.position : entry.position + entry.size])


def entry_at(offset: int, end: int, generation: int = 1) -> Tail:
    return Tail(f"bundle-{offset}-{end}", Entry("a.log", generation, offset, end - offset, 0, 0, 1))


def always(_: Entry) -> bool:
    return True


def never(_: Entry) -> bool:
    return False


def never_asked(entry: Entry) -> bool:
    raise AssertionError(f"there was nothing to compare with {entry}")


def spans(plan: Plan) -> list[tuple[int, int, str]]:
    return [(part.start, part.end, "tail" if part.tail else "whole") for part in plan.segments]


# The format


@given(
    st.lists(st.tuples(st.text(max_size=20), st.integers(0, 2**53 - 1), st.integers(0, 2**52), st.binary(min_size=1)))
)
def test_a_bundle_gives_back_every_run_of_bytes(runs: list[tuple[str, int, int, bytes]]) -> None:
    bundle = bundle_of(*runs)
    entries = parse_header(bundle)
    assert [(e.path, e.generation, e.offset, entry_bytes(bundle, e)) for e in entries] == [
        (portable_path(path), generation, offset, data) for path, generation, offset, data in runs
    ]


def test_the_header_is_read_from_a_prefix_that_says_how_long_it_must_be() -> None:
    bundle = bundle_of(*((f"worker-{n:056x}.out", n, 0, os.urandom(50)) for n in range(3000)))
    needed = header_size(bundle[:FIRST_READ])
    assert FIRST_READ < needed < len(bundle)
    assert len(parse_header(bundle[:needed])) == 3000
    with pytest.raises(CorruptBundle, match=f"ends after {FIRST_READ} of {needed} bytes"):
        parse_header(bundle[:FIRST_READ])


def test_the_first_read_holds_the_header_of_three_hundred_worker_logs() -> None:
    name = f"worker-{'a' * 56}-01000000-1234567.out"
    bundle = bundle_of(*((name, 1_794_772_956_123_456_789, 10**9, os.urandom(50)) for _ in range(300)))
    assert header_size(bundle) <= FIRST_READ


def test_the_writer_knows_its_size_and_splits_large_entries() -> None:
    writer = BundleWriter()
    writer.add("a.log", 1, 100, b"")
    assert writer.raw_size == 0
    data = random.Random(1).randbytes(MAX_ENTRY + 5)
    writer.add("a.log", 1, 100, data)
    assert writer.raw_size == len(data)
    bundle = writer.finish()
    entries = parse_header(bundle)
    assert [(e.offset, e.length) for e in entries] == [(100, MAX_ENTRY), (100 + MAX_ENTRY, 5)]
    assert b"".join(entry_bytes(bundle, e) for e in entries) == data


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_bundle_is_refused_and_never_read_as_other_bytes(data: st.DataObject) -> None:
    good = bundle_of(("a.log", 1, 0, b"one\n" * 20), ("b.log", 7, 1000, bytes(range(40))))
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        bad[data.draw(st.integers(0, len(bad) - 1))] ^= data.draw(st.integers(1, 255))
    del bad[data.draw(st.integers(0, len(bad))) :]
    try:
        read = [(e.path, e.offset, entry_bytes(bytes(bad), e)) for e in parse_header(bytes(bad))]
    except CorruptBundle:
        return
    assert read == [(e.path, e.offset, entry_bytes(good, e)) for e in parse_header(good)]


@given(st.binary(max_size=200))
def test_any_other_bytes_are_no_bundle(data: bytes) -> None:
    with pytest.raises(CorruptBundle):
        parse_header(data)


def test_a_newer_version_is_named_in_the_refusal() -> None:
    with pytest.raises(CorruptBundle, match="version 2; this reader supports version 1"):
        parse_header(b"RAYTAIL\x02" + bytes(100))


def test_a_header_that_claims_gigabytes_is_refused_before_it_is_read() -> None:
    with pytest.raises(CorruptBundle, match="claims 4294967295 bytes"):
        header_size(b"RAYTAIL\x01" + b"\xff" * 8)


@pytest.mark.parametrize(
    "wrong",
    [
        b'{"entries":[{"path":"a","generation":1,"offset":-1,"length":1,"crc32":0,"position":0,"size":1}]}',
        b'{"entries":[{"path":"a","generation":1,"offset":0,"length":99999999,"crc32":0,"position":0,"size":1}]}',
        b'{"entries":[{"path":"a","generation":1,"offset":0,"length":1,"crc32":0,"position":0,"size":99999999}]}',
        b'{"entries":[{"path":1}]}',
        b"[]",
        b"\xff",
    ],
)
def test_a_header_with_impossible_numbers_is_refused(wrong: bytes) -> None:
    bundle = log_tails._PREAMBLE.pack(log_tails._MAGIC, len(wrong), zlib.crc32(wrong)) + wrong
    with pytest.raises(CorruptBundle, match="cannot be decoded"):
        parse_header(bundle)


def test_fields_of_a_later_version_are_ignored() -> None:
    header = (
        b'{"entries":[{"path":"a","generation":1,"offset":0,"length":1,"crc32":0,"position":0,"size":1,"new":2}],"x":1}'
    )
    bundle = log_tails._PREAMBLE.pack(log_tails._MAGIC, len(header), zlib.crc32(header)) + header
    assert parse_header(bundle)[0].path == "a"


def test_a_frame_that_would_decompress_to_more_than_it_says_is_refused() -> None:
    bundle = bundle_of(("a.log", 1, 0, bytes(MAX_ENTRY)))
    true = parse_header(bundle)[0]
    lie = Entry("a.log", 1, 0, 10, zlib.crc32(bytes(10)), true.position, true.size)
    with pytest.raises(CorruptBundle, match="has more than 10 bytes"):
        entry_bytes(bundle, lie)


def test_a_name_that_is_not_utf8_on_disk_becomes_text_and_keeps_its_place() -> None:
    assert portable_path(os.fsdecode(b"old/caf\xe9 \\ 100%.log")) == "old/caf\\xe9 \\x5c 100%.log"
    assert portable_path("old/café ☕.log") == "old/café ☕.log"


def test_control_characters_of_a_name_are_written_out() -> None:
    assert portable_path("a\nb\t\x7f.log") == "a\\x0ab\\x09\\x7f.log"
    assert portable_path("\u0085") == "\\xc2\\x85"
    assert portable_path(os.fsdecode(b"\x85")) == "\\x85"


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_two_names_on_disk_are_never_one_name_in_the_archive(one: bytes, other: bytes) -> None:
    assert (portable_path(os.fsdecode(one)) == portable_path(os.fsdecode(other))) == (one == other)
    portable_path(os.fsdecode(one)).encode()


# The stitching, rule by rule


def test_without_tails_the_whole_object_is_the_file() -> None:
    assert spans(stitch(100, [], never_asked)) == [(0, 100, "whole")]
    assert stitch(None, [], never_asked) == Plan((), (), 0, 0, ())
    assert stitch(0, [], never_asked).segments == ()


def test_without_a_whole_object_the_tails_are_the_file() -> None:
    plan = stitch(None, [entry_at(10, 30), entry_at(0, 10)], never_asked)
    assert spans(plan) == [(0, 10, "tail"), (10, 30, "tail")]
    assert (plan.size, plan.gaps) == (30, ())


def test_bytes_that_were_never_shipped_are_a_gap_and_shift_nothing() -> None:
    plan = stitch(None, [entry_at(5, 10), entry_at(20, 30)], never_asked)
    assert plan.gaps == ((0, 5), (10, 20))
    assert spans(plan) == [(5, 10, "tail"), (20, 30, "tail")]
    assert plan.size == 30


def test_duplicates_and_overlaps_are_read_once_from_the_fewest_bundles() -> None:
    plan = stitch(
        None, [entry_at(0, 10), entry_at(5, 8), entry_at(0, 10), entry_at(4, 12), entry_at(0, 20)], never_asked
    )
    assert spans(plan) == [(0, 20, "tail")]


def test_tails_go_on_where_the_whole_object_ends() -> None:
    assert spans(stitch(100, [entry_at(100, 120)], never_asked)) == [(0, 100, "whole"), (100, 120, "tail")]
    assert spans(stitch(100, [entry_at(90, 120)], never_asked)) == [(0, 90, "whole"), (90, 120, "tail")]
    plan = stitch(100, [entry_at(110, 120)], never_asked)
    assert spans(plan) == [(0, 100, "whole"), (110, 120, "tail")]
    assert plan.gaps == ((100, 110),)


def test_a_whole_object_that_has_the_bytes_of_a_tail_is_of_the_same_file() -> None:
    assert spans(stitch(100, [entry_at(0, 90), entry_at(90, 120)], always)) == [(0, 100, "whole"), (100, 120, "tail")]


def test_a_whole_object_with_other_bytes_is_of_an_older_file_and_ignored() -> None:
    assert spans(stitch(100, [entry_at(0, 90), entry_at(90, 120)], never)) == [(0, 90, "tail"), (90, 120, "tail")]
    assert spans(stitch(5, [entry_at(0, 90)], never_asked)) == [(0, 90, "tail")]


def test_the_last_tail_that_is_long_enough_to_prove_something_is_compared_and_only_once() -> None:
    asked: list[tuple[int, int]] = []

    def belongs(entry: Entry) -> bool:
        asked.append((entry.offset, entry.end))
        return True

    stitch(1000, [entry_at(0, 500), entry_at(500, 600), entry_at(600, 601), entry_at(601, 2000)], belongs)
    stitch(1000, [entry_at(0, 10), entry_at(10, 11)], belongs)
    assert asked == [(500, 600), (0, 10)]


def test_only_the_newest_generation_of_a_path_is_stitched() -> None:
    plan = stitch(None, [entry_at(0, 1000, generation=1), entry_at(0, 10, generation=2)], never_asked)
    assert spans(plan) == [(0, 10, "tail")]


def test_when_a_tail_is_unreadable_its_duplicate_takes_over_or_its_bytes_become_a_gap() -> None:
    first, again, last = entry_at(0, 20), entry_at(0, 15), entry_at(20, 30)
    plan = stitch(None, [first, again, last], never_asked)
    damaged = plan.without(first)
    assert spans(damaged) == [(0, 15, "tail"), (20, 30, "tail")]
    assert damaged.gaps == ((15, 20),)
    assert damaged.without(last).gaps == ((15, 30),)
    assert damaged.without(last).size == 30


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=12), st.integers(0, 60), st.randoms())
def test_the_order_of_tails_does_not_matter_and_every_byte_is_covered_once(
    runs: list[tuple[int, int]], whole_size: int, shuffler: random.Random
) -> None:
    given_tails = [entry_at(offset, offset + length) for offset, length in runs]
    plan = stitch(whole_size, given_tails, always)
    shuffled = shuffler.sample(given_tails, len(given_tails))
    again = stitch(whole_size, shuffled, always)
    assert (again.segments, again.gaps, again.size) == (plan.segments, plan.gaps, plan.size)
    pieces = sorted([(part.start, part.end) for part in plan.segments] + list(plan.gaps))
    assert [piece[0] for piece in pieces] == [0, *(piece[1] for piece in pieces)][: len(pieces)]
    held = {byte for offset, length in runs for byte in range(offset, offset + length)}
    assert all(not held & set(range(*gap)) for gap in plan.gaps)


# The stitching against a model of a node, its collector and the bucket


@dataclass
class Content:
    """A file on the node: bytes at an offset never change during its life, and no two files have equal bytes."""

    seed: int
    length: int = 0

    def bytes(self, start: int, end: int) -> bytes:
        return random.Random(self.seed).randbytes(4096)[start:end]


@dataclass
class Shipped:
    data: bytes
    runs: list[tuple[int, int, int]]
    """(generation, start, end) of our file."""
    pinned: bool
    """It holds bytes of another file too, which is not uploaded whole yet."""


@dataclass
class Bucket:
    bundles: dict[str, Shipped] = field(default_factory=dict)
    whole: bytes | None = None
    whole_generation: int = 0


LEAST = 8  # bytes per run: shorter ones would be equal by chance, which is the documented limit


class LogInTheBucket(RuleBasedStateMachine):
    """Whatever happens to files, collector and bucket, `stitch` returns the uploaded bytes of the newest file."""

    def __init__(self) -> None:
        super().__init__()
        self.bucket = Bucket()
        self.contents: dict[int, Content] = {1: Content(1)}
        self.generation = 1
        self.sent = 0
        self.sequence = 0
        self.started: set[int] = set()
        self.rotated: dict[int, int] = {}

    @property
    def file(self) -> Content:
        return self.contents[self.generation]

    def ship(self, start: int, end: int, pinned: bool) -> None:
        writer = BundleWriter()
        writer.add("other.log", 1, self.sequence, b"another file's bytes")
        middle = (start + end) // 2 if end - start >= 2 * LEAST else end
        runs = [(self.generation, a, b) for a, b in ((start, middle), (middle, end)) if a < b]
        for generation, a, b in runs:
            writer.add("a.log", generation, a, self.file.bytes(a, b))
        self.sequence += 1
        self.bucket.bundles[f"{self.sequence:012}"] = Shipped(writer.finish(), runs, pinned)
        self.started.add(self.generation)
        self.sent = max(self.sent, end)

    def begin_file(self) -> None:
        self.generation += 1
        self.contents[self.generation] = Content(self.generation)
        self.sent = 0

    def same_file(self, one: int, other: int) -> bool:
        return self.contents[one] is self.contents[other]

    def is_superseded(self, run: tuple[int, int, int]) -> bool:
        generation, _, end = run
        bucket = self.bucket
        if self.rotated.get(generation, 0) >= end:
            return True
        if bucket.whole is None:
            return False
        if self.same_file(generation, bucket.whole_generation):
            return end <= len(bucket.whole)
        return generation < bucket.whole_generation

    @rule(amount=st.integers(LEAST, 60))
    def the_file_grows(self, amount: int) -> None:
        self.file.length = min(self.file.length + amount, 4096)

    @precondition(lambda self: self.file.length > 0)
    @rule(kept=st.booleans(), amount=st.integers(0, 60))
    def another_file_takes_its_place(self, kept: bool, amount: int) -> None:
        if kept:  # rotated, and uploaded whole under its new name; else truncated
            self.rotated[self.generation] = self.file.length
        self.begin_file()
        self.file.length = amount

    @precondition(lambda self: self.file.length - self.sent >= LEAST)
    @rule(data=st.data(), pinned=st.booleans())
    def an_interval_passes(self, data: st.DataObject, pinned: bool) -> None:
        self.ship(self.sent, data.draw(st.integers(self.sent + LEAST, self.file.length)), pinned)

    @precondition(lambda self: self.sent >= LEAST)
    @rule(data=st.data(), pinned=st.booleans())
    def bytes_are_shipped_again(self, data: st.DataObject, pinned: bool) -> None:
        start = 0 if self.generation not in self.started else data.draw(st.integers(0, self.sent - LEAST))
        self.ship(start, data.draw(st.integers(start + LEAST, self.file.length)), pinned)

    @precondition(lambda self: self.generation in self.started and self.file.length - self.sent > 1)
    @rule(data=st.data())
    def a_flooding_log_is_cut(self, data: st.DataObject) -> None:
        self.sent = data.draw(st.integers(self.sent, self.file.length))

    @precondition(lambda self: self.file.length > 0)
    @rule(knows=st.booleans())
    def the_file_is_uploaded_whole(self, knows: bool) -> None:
        if self.generation not in self.started:
            self.ship(0, self.file.length, pinned=False)
        self.bucket.whole = self.file.bytes(0, self.file.length)
        self.bucket.whole_generation = self.generation
        if knows:
            self.sent = max(self.sent, self.file.length)

    @rule()
    def the_other_files_are_uploaded_whole(self) -> None:
        for shipped in self.bucket.bundles.values():
            shipped.pinned = False

    @rule(crash_after=st.integers(0, 20))
    def superseded_bundles_are_deleted_until_a_crash(self, crash_after: int) -> None:
        if self.bucket.whole is not None and not self.same_file(self.bucket.whole_generation, self.generation):
            self.bucket.whole = None  # moved to the name under which the replaced file is kept
            self.rotated[self.bucket.whole_generation] = 4096
        for key in sorted(self.bucket.bundles)[:crash_after]:
            shipped = self.bucket.bundles[key]
            if shipped.pinned or not all(map(self.is_superseded, shipped.runs)):
                return
            del self.bucket.bundles[key]

    @precondition(lambda self: self.sent > 0)
    @rule(data=st.data(), forgets=st.booleans())
    def the_collector_restarts(self, data: st.DataObject, forgets: bool) -> None:
        if forgets:  # its disk is gone too: the same file is a new one for it
            same = self.file
            self.begin_file()
            self.contents[self.generation] = same
        else:
            self.sent = data.draw(st.integers(0, self.sent))

    @invariant()
    def what_is_stitched_is_what_was_shipped_of_the_newest_file(self) -> None:
        bucket = self.bucket
        found = [
            Tail(key, entry)
            for key, shipped in bucket.bundles.items()
            for entry in parse_header(shipped.data)
            if entry.path == "a.log"
        ]
        asked = []

        def belongs(entry: Entry) -> bool:
            asked.append(entry)
            assert bucket.whole is not None
            return zlib.crc32(bucket.whole[entry.offset : entry.end]) == entry.crc32

        plan = stitch(None if bucket.whole is None else len(bucket.whole), found, belongs)
        assert len(asked) <= 1

        newest = max([bucket.whole_generation, *(tail.entry.generation for tail in found)])
        held: set[int] = set()
        for tail in found:
            if tail.entry.generation == newest:
                held.update(range(tail.entry.offset, tail.entry.end))
        if bucket.whole is not None and self.same_file(bucket.whole_generation, newest):
            held.update(range(len(bucket.whole)))

        assert plan.size == max(held, default=-1) + 1
        assert {byte for gap in plan.gaps for byte in range(*gap)} == set(range(plan.size)) - held
        for part in plan.segments:
            if part.tail is None:
                assert bucket.whole is not None
                data = bucket.whole[part.start : part.end]
            else:
                entry = part.tail.entry
                raw = entry_bytes(bucket.bundles[part.tail.bundle].data, entry)
                data = raw[part.start - entry.offset : part.end - entry.offset]
            assert data == self.contents[newest].bytes(part.start, part.end)


LogInTheBucket.TestCase.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)
TestLogInTheBucket = LogInTheBucket.TestCase


@pytest.mark.parametrize(
    "header",
    [
        b'{"entries": [], "empty": ["\xff"]}',
        b'{"entries":[{"path":"a","generation":0,"offset":0,"length":1,"crc32":0,"position":18446744073709551616,"size":1}]}',
    ],
)
def test_a_header_with_impossible_values_is_corrupt(header: bytes) -> None:
    sizes = len(header).to_bytes(4, "little") + zlib.crc32(header).to_bytes(4, "little")
    with pytest.raises(CorruptBundle, match="cannot be decoded"):
        parse_header(b"RAYTAIL\x01" + sizes + header)
