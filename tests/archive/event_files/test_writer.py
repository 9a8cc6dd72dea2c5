"""Writing event files."""

from __future__ import annotations

import gzip
import json
import tracemalloc

from ray_history.archive.event_files import (
    encode_event_chunks,
    encode_events,
)

from .samples import (
    EVENTS,
    MIB,
    lines,
    ray_event,
)


def test_equal_events_are_written_as_equal_bytes_that_any_gzip_reads() -> None:
    body = encode_events(EVENTS)
    assert body == encode_events(iter(EVENTS))
    assert body[4:8] == b"\0\0\0\0"
    assert gzip.decompress(body) == lines(EVENTS)
    assert encode_events(EVENTS, compress=False) == lines(EVENTS)
    assert gzip.decompress(encode_events([])) == b""


def test_an_event_over_several_lines_is_written_as_one() -> None:
    event = b'{\n  "a": "x\\ny",\r\n  "b": 1\n}'
    written = encode_events([event, EVENTS[0]], compress=False)
    assert written.count(b"\n") == 2
    assert json.loads(written.split(b"\n")[0]) == json.loads(event)


def test_writing_holds_about_a_block_however_many_events_there_are() -> None:
    tracemalloc.start()
    written = sum(map(len, encode_event_chunks((ray_event(number) for number in range(20_000)), compress=False)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert written > 10 * MIB
    assert peak < 4 * MIB
