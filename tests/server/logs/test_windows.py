"""Windows of a log show every byte once, forwards and backwards, and number its lines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_history.archive.log_files import LogFiles, LogReader
from ray_history.archive.log_tails import BundleWriter
from ray_history.archive.stores import open_store
from ray_history.archive.stores.memory import MemorySettings
from ray_history.server.logs import line_numbers, windows
from ray_history.server.logs.line_numbers import LineNumbers
from ray_history.server.logs.windows import LogWindows, Window
from ray_history.server.redaction.log_lines import written_by_ray
from ray_history.server.redaction.rules import HIDDEN

contents = st.lists(st.sampled_from([b"\n", b"a", b"line\n", b"longer than a window", b"\r\n", b"\xff"])).map(b"".join)


_places = count()


def reader_of(content: bytes, *, gap: tuple[int, int] | None = None) -> LogReader:
    """A log in the archive; with a gap, the bytes around it are in log tails."""
    store = open_store(MemorySettings(f"windows-{next(_places)}"))
    if gap is None:
        store.put("a.log", content)
        logs = LogFiles(store, [("node", "a.log", each) for each in store.list("")], [])
    else:
        writer = BundleWriter()
        writer.add("a.log", 1, 0, content[: gap[0]])
        writer.add("a.log", 1, gap[1], content[gap[1] :])
        store.put("bundle", writer.finish())
        logs = LogFiles(store, [], [("node", each) for each in store.list("")])
    return logs.open(logs.find("node", "a.log"))


def forwards(found: LogWindows) -> Iterator[Window]:
    window = found.after(found.low)
    yield window
    while window.end < found.high:
        window = found.after(window.end)
        yield window


def backwards(found: LogWindows) -> Iterator[Window]:
    window = found.last()
    yield window
    while window.start > found.low:
        window = found.before(window.start)
        yield window


def text_of(window: Window, content: bytes) -> bytes:
    """The bytes of its lines, with the line ends that the file has there."""
    ends = [*(line.start for line in window.lines), window.end][1:]
    return b"".join(
        line.text + content[line.start + len(line.text) : end] for line, end in zip(window.lines, ends, strict=True)
    )


@settings(max_examples=150, deadline=None)
@given(content=contents, size=st.integers(5, 40), data=st.data())
def test_windows_are_the_file(content: bytes, size: int, data: st.DataObject) -> None:
    low = data.draw(st.integers(0, len(content)))
    high = data.draw(st.integers(low, len(content)))
    with patch.object(windows, "WINDOW", size):
        found = LogWindows(reader_of(content), low, high, None)
        onwards, back = list(forwards(found)), list(backwards(found))[::-1]
    for each in (onwards, back):
        assert b"".join(text_of(window, content) for window in each) == content[low:high]
        assert [window.start for window in each[1:]] == [window.end for window in each[:-1]]
        assert all(b"\n" not in line.text for window in each for line in window.lines)


@settings(max_examples=60, deadline=None)
@given(content=contents, block=st.integers(1, 9))
def test_lines_have_the_numbers_that_an_editor_shows(content: bytes, block: int) -> None:
    reader = reader_of(content)
    starts = [0, *(at + 1 for at, byte in enumerate(content) if byte == ord("\n") and at + 1 < len(content))]
    with patch.object(line_numbers, "_BLOCK", block), patch.object(line_numbers, "MOST_BLOCKS", 1_000):
        numbers = LineNumbers()
        for number, start in reversed(list(enumerate(starts, 1))):
            assert numbers.at(reader, start) == number
            assert LineNumbers().offset_of(reader, number) == start
        assert numbers.offset_of(reader, len(starts) + 5) == len(content)


def test_lines_far_into_a_log_are_counted_in_several_requests() -> None:
    reader = reader_of(b"line\n" * 100)
    with patch.object(line_numbers, "_BLOCK", 50), patch.object(line_numbers, "MOST_BLOCKS", 4):
        numbers = LineNumbers()
        assert numbers.at(reader, 400) is None
        assert numbers.at(reader, 400) == 81
        assert numbers.offset_of(reader, 81) == 400
        assert LineNumbers().offset_of(reader, 81) is None


def test_a_gap_is_named_and_not_crossed() -> None:
    content = b"".join(b"line %02d\n" % number for number in range(20))
    found = LogWindows(reader_of(content, gap=(32, 80)), 0, len(content), None)
    first, second = forwards(found)
    assert (first.start, first.end, first.missing) == (0, 32, None)
    assert (second.start, second.end, second.missing) == (80, 160, (32, 80))
    assert [window.start for window in backwards(found)] == [80, 0]
    assert LineNumbers().offset_of(reader_of(content, gap=(32, 80)), 6) == 88


def test_secrets_are_hidden_also_where_a_line_is_cut() -> None:
    name = "runtime_env_agent.log"
    content = b"{'env_vars': {'KEY': 'secret'}}" + b"x" * 100 + b"\nnext 'KEY'\n"
    with patch.object(windows, "WINDOW", 30):
        found = LogWindows(reader_of(content), 0, len(content), written_by_ray(name))
        texts = [line.text for window in forwards(found) for line in window.lines]
    assert HIDDEN.encode() in texts
    assert not any(b"secret" in text for text in texts)


@pytest.mark.parametrize("place", [0, 3, 10_000])
def test_places_outside_of_the_part_are_moved_into_it(place: int) -> None:
    found = LogWindows(reader_of(b"one\ntwo\nthree\nfour\n"), 4, 14, None)
    assert [line.text for line in found.after(place).lines] == ([] if place > 14 else [b"two", b"three"])
    assert [line.text for line in found.last().lines] == [b"two", b"three"]
