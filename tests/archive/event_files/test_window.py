"""The window on a stream, and the report of problems."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ray_history.archive.event_files.window import Limits, Problem, Report, Window


def test_chunks_are_read_only_when_the_held_bytes_do_not_suffice() -> None:
    read: list[int] = []

    def chunks() -> Iterator[bytes]:
        for number in range(3):
            read.append(number)
            yield b"abcd"

    window = Window(chunks())
    assert window.take(3) == b"abc"
    assert read == [0]
    assert window.fill(1)
    assert read == [0]
    assert window.take(20) == b"dabcdabcd"
    assert (window.offset, window.left, window.fill(1), window.peek()) == (12, 0, False, None)


def test_taken_bytes_can_be_given_back_after_they_were_dropped() -> None:
    window = Window([b"abcdef", b"ghij"])
    taken = window.take(5)
    assert window.take(3) == b"fgh"
    window.give_back(taken[3:] + b"fgh")
    assert window.offset == 3
    assert window.take(10) == b"defghij"


@pytest.mark.parametrize(("text", "lines", "offset"), [(b"", 0, 0), (b"x", 0, 0), (b" \n\t\nx", 2, 4), (b"\n\n", 2, 2)])
def test_skipping_counts_line_ends(text: bytes, lines: int, offset: int) -> None:
    window = Window(text[at : at + 1] for at in range(len(text)))
    assert window.skip(b" \t\n") == lines
    assert window.offset == offset


def test_further_problems_are_counted_in_one_entry() -> None:
    problems: list[Problem] = []
    report = Report("f", problems, Limits(max_problems=2, max_faults=4))
    for offset in range(3):
        report.add("broken", offset, "no", line=offset + 1)
    assert [str(problem) for problem in problems] == [
        "f: line 1 (byte 0): broken: no",
        "f: line 2 (byte 1): broken: no",
        "f: line 3 (byte 2): more: 1 more problems, the last: broken: no",
    ]
    assert not report.given_up
    report.add("broken", 3, "no")
    assert report.given_up
    assert (len(problems), problems[-1].kind) == (3, "more")
    assert "too broken" in problems[-1].detail
