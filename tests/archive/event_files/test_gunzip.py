"""Compressed event files, damaged ones included."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib

import pytest

from ray_history.archive.event_files import (
    Limits,
)

from .samples import (
    EVENTS,
    MIB,
    kinds,
    lines,
    ray_event,
    read,
)


def test_a_cut_gzip_file_has_every_complete_event() -> None:
    text = lines([ray_event(number) for number in range(2000)])
    body = gzip.compress(text)
    for cut in random.Random(7).sample(range(20, len(body)), 40):
        unpacked = zlib.decompressobj(31).decompress(body[:cut])
        events, problems = read(body[:cut], step=4096)
        assert lines(events) == unpacked[: unpacked.rfind(b"\n") + 1] or cut > len(body) - 8
        assert problems[0].kind == "truncated"
        assert text.startswith(lines(events))


def test_a_wrong_checksum_is_reported_and_costs_nothing() -> None:
    body = bytearray(gzip.compress(lines(EVENTS)))
    body[-8] ^= 1
    events, problems = read(bytes(body))
    assert events == EVENTS
    assert kinds(problems) == ["gzip"]


def test_damaged_compressed_data_cost_little_text_before_the_damage() -> None:
    text = lines([ray_event(number) for number in range(2000)])
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    body = packer.compress(text) + packer.flush(zlib.Z_FULL_FLUSH) + b"\x07" * 100  # block type 3 does not exist
    events, problems = read(body)
    certain = zlib.decompressobj(31).decompress(body[: -100 - 2048])
    assert text.startswith(lines(events))
    assert len(lines(events)) >= certain.rfind(b"\n")
    assert problems[0].kind == "gzip"


def test_gzip_members_may_begin_at_any_byte() -> None:
    noise = random.Random(3).randbytes(4000).hex()
    for length in range(3500, 3800):
        event = b'{"a":"' + noise[:length].encode() + b'"}'
        assert read(gzip.compress(event + b"\n") * 3, step=2048) == ([event] * 3, [])


def test_garbage_after_a_gzip_member_is_reported_and_padding_is_not() -> None:
    body = gzip.compress(lines(EVENTS))
    assert read(body + b"\0" * 512) == (EVENTS, [])
    for garbage in (b"garbage", b"\x1f", b"\x1f\x8b\x09 garbage garbage", lines(EVENTS)):
        events, problems = read(body + garbage, step=100)
        assert events == EVENTS
        assert [(problem.kind, problem.offset) for problem in problems] == [("gzip", len(lines(EVENTS)))]


def test_gzip_headers_with_every_optional_field_are_read() -> None:
    plain = gzip.compress(lines(EVENTS))
    header = b"\x1f\x8b\x08\x1e" + plain[4:10] + b"\x05\0extra" + b"name\0" + b"comment\0" + b"\x12\x34"
    assert read(header + plain[10:], step=1) == (EVENTS, [])
    assert kinds(read(header[:20])[1]) == ["gzip"]


def bomb(start: bytes, repeated: bytes, mebibytes: int) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    block = repeated * (MIB // len(repeated))
    return packer.compress(start) + b"".join(packer.compress(block) for _ in range(mebibytes)) + packer.flush()


@pytest.mark.parametrize(
    ("start", "repeated", "kind"),
    [
        (b"", b"\0", "too long"),
        (b"", b" ", ""),
        (b"", b"[", "broken"),
        (b"[", b" ", "truncated"),
        (b"[{", b" ", "too long"),
        (b'[{"a":"', b"x", "too long"),
        (b'[{"a":[', b'{},{"a":["]",', "broken"),
        (b"[", b"},{", "broken"),
        (b"[", b"1,", "not an object"),
    ],
)
def test_a_decompression_bomb_takes_little_memory_and_ends(start: bytes, repeated: bytes, kind: str) -> None:
    body = bomb(start, repeated, 32)
    limits = Limits(max_event=2 * MIB, max_bytes=24 * MIB)
    tracemalloc.start()
    events, problems = read(body, limits=limits)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert events == []
    assert not kind or kind in kinds(problems)
    assert len(problems) <= 101
    assert peak < 12 * MIB


def test_a_file_over_the_limit_is_read_up_to_it() -> None:
    for pack in (bytes, gzip.compress):
        events, problems = read(pack(lines(EVENTS)), limits=Limits(max_bytes=len(lines(EVENTS[:3])) + 5))
        assert events == EVENTS[:3]
        assert kinds(problems) == ["too large", "truncated"]
