"""Event files: JSON lines and arrays, compressed or not, whole or damaged."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator

import msgspec

from ray_history.archive.event_files import Limits, Problem, encode_events, read_events, read_text
from tests.archive.event_files.samples import FORMATS, ray_event
from tests.fuzz.target import target

_TOKENS = (
    b"\xef\xbb\xbf",
    b"\x1f\x8b\x08",
    b"[{",
    b"}]",
    b"},{",
    b"}\n{",
    b"null",
    b'{"sessionName":""}',
    b"]\n[",
    b"\r\n",
)
_EVENTS = [ray_event(number, 1) for number in range(3)]


def _seeds() -> list[bytes]:
    return [made(_EVENTS) for made in FORMATS.values()]


def _read(data: bytes, step: int, limits: Limits = Limits()) -> tuple[list[bytes], list[Problem]]:  # noqa: B008
    problems: list[Problem] = []
    chunks = (data[start : start + step] for start in range(0, len(data), step))
    return list(read_events(chunks, file="f", problems=problems, limits=limits)), problems


def _between(text: bytes, events: list[bytes]) -> Iterator[bytes]:
    """What stands before, between and after the events."""
    position = 0
    for event in events:
        found = text.find(event, position)
        assert found >= 0, f"an event that is not in the file, or in another order: {event[:200]!r}"
        yield text[position:found]
        position = found + len(event)
    yield text[position:]


@target("event_files", _seeds, tokens=_TOKENS)
def event_files(data: bytes) -> None:
    """Every event is a JSON object in UTF-8 of the file, in its order; all else is a problem with a position in the
    text; how the body is cut into chunks changes nothing; the events written again are read again."""
    events, problems = _read(data, len(data) or 1)
    text = b"".join(read_text([data], file="f", problems=[]))
    rest = b"".join(_between(text, events))
    if not problems:
        assert not rest.removeprefix(b"\xef\xbb\xbf").replace(b"null", b"").strip(b" \t\r\n[],"), "lost without a word"
    for event in events:
        assert event.startswith(b"{")
        msgspec.json.decode(event, type=msgspec.Raw)
        event.decode()
    for problem in problems:
        # Up to the last step the text before damage in gzip is read, and not by `read_text`, which takes larger steps.
        assert problem.offset >= 0
        assert data.startswith(b"\x1f\x8b") or problem.offset <= len(data)
        assert problem.line is None or 1 <= problem.line <= text.count(b"\n") + 1 or data.startswith(b"\x1f\x8b")
    if len(data) <= 8192:
        assert _read(data, 1 + zlib.crc32(data) % 97) == (events, problems)
    assert _read(encode_events(events), 1 << 16) == ([event.replace(b"\n", b" ") for event in events], [])


@target("event_files_limits", _seeds, tokens=_TOKENS)
def event_files_limits(data: bytes) -> None:
    """No event is longer than the limit, no text larger, no list of problems longer, and no event is invented."""
    limits = Limits(max_event=200, max_bytes=3000, block=64, max_problems=3, max_faults=10, max_rescues=4)
    events, problems = _read(data, 50, limits)
    assert all(len(event) <= limits.max_event for event in events)
    assert sum(map(len, events)) <= limits.max_bytes
    assert len(problems) <= limits.max_problems + 1
    list(_between(b"".join(read_text([data], file="f", problems=[])), events))


@target("gunzip", lambda: [gzip.compress(b"".join(_EVENTS)), gzip.compress(b"a" * 9000) * 2], tokens=(b"\x1f\x8b\x08",))
def gunzip(data: bytes) -> None:
    """Whole files are read as zlib reads them; there is never more text than the limit."""
    problems: list[Problem] = []
    limits = Limits(max_bytes=100_000)
    text = b"".join(read_text([data], file="f", problems=problems, limits=limits))
    assert len(text) <= limits.max_bytes
    if not data.startswith(b"\x1f\x8b"):
        assert text == data[: limits.max_bytes]
        return
    expected = _inflated(data, limits.max_bytes)
    if expected is not None:  # otherwise zlib may be stricter than isal: the checksums decide
        assert (text, problems) == (expected, [])


def _inflated(data: bytes, limit: int) -> bytes | None:
    """The text of all members; None if anything is wrong, or there is too much of it."""
    text = b""
    while data := data.lstrip(b"\0"):
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            text += member.decompress(data, limit + 1)
        except zlib.error:
            return None
        if not member.eof or len(text) > limit:
            return None
        data = member.unused_data
    return text
