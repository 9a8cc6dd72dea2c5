"""Events in JSON lines."""

from __future__ import annotations

import pytest

from ray_history.archive.event_files import (
    Limits,
    Problem,
    read_events,
)

from .samples import (
    EVENTS,
    MIB,
    lines,
    read,
)


@pytest.mark.parametrize(
    ("damaged", "kind"),
    [
        (b'{"a": 1', "broken"),
        (b'{"a": 1}}', "broken"),
        (b'{"a": 1} {"b": 2}', "broken"),
        (b'{"a": NaN}', "broken"),
        (b'{"a": "\x00"}', "broken"),
        (b"\x00\x00\x00\x00", "broken"),
        (b"[" * 200_000, "broken"),
        (b'{"a":' * 200_000, "broken"),
        (b"17", "not an object"),
        (b'"text"', "not an object"),
        (b'[{"a": 1}]', "not an object"),
        (b'{"a": "\xff"}', "not utf-8"),
        (b'{"a": "\xed\xa0\x80"}', "not utf-8"),
    ],
)
def test_a_damaged_line_costs_only_itself(damaged: bytes, kind: str) -> None:
    events, problems = read(lines([EVENTS[0], damaged, EVENTS[2]]))
    assert events == [EVENTS[0], EVENTS[2]]
    (problem,) = problems
    assert (problem.kind, problem.line, problem.offset) == (kind, 2, len(EVENTS[0]) + 1)


def test_an_object_over_two_lines_is_two_broken_lines_wherever_blocks_begin() -> None:
    body = lines([b'{"a":', b"1}", b'{"b":1}{"c":1}', EVENTS[0]])
    for block in (1, 4, 10, MIB):
        events, problems = read(body, limits=Limits(block=block))
        assert events == [EVENTS[0]]
        assert [problem.line for problem in problems] == [1, 2, 3]


def test_a_torn_last_line_is_reported_as_truncated() -> None:
    events, problems = read(lines(EVENTS[:2]) + EVENTS[2][:50])
    assert events == EVENTS[:2]
    assert str(problems[0]).startswith(f"node-1: line 3 (byte {len(lines(EVENTS[:2]))}): truncated: the file ends")


@pytest.mark.parametrize("block", [1, 100, MIB])
def test_a_line_that_is_too_long_is_skipped_and_later_lines_are_read(block: int) -> None:
    limit = Limits(max_event=3000, block=block)
    longest = b'{"a":"' + b"x" * (3000 - 8) + b'"}'
    events, problems = read(lines([longest, b"x" * 20_000, longest + b" ", EVENTS[0]]), step=7, limits=limit)
    assert events == [longest, EVENTS[0]]
    assert [(problem.kind, problem.line, problem.offset, problem.detail.split(",")[0]) for problem in problems] == [
        ("too long", 2, 3001, "20000 bytes"),
        ("too long", 3, 23_002, "3001 bytes"),
    ]


def test_a_file_of_faults_only_is_given_up_and_reported() -> None:
    for body in (b"x\n" * MIB, b"[" + b"1," * MIB):
        events, problems = read(body)
        assert events == []
        assert len(problems) == 101
        assert "too broken" in str(problems[-1]) or "more problems" in str(problems[-1])


def test_only_the_first_problems_are_listed_and_the_rest_counted() -> None:
    earlier = Problem("another file", "broken", 0, 1, "")
    problems = [earlier]
    assert list(read_events([b"x\n" * 1000], file="node-1", problems=problems)) == []
    assert len(problems) == 1 + 100 + 1
    assert problems[0] is earlier
    assert str(problems[-1]).startswith("node-1: line 1000 (byte 1998): more: 900 more problems, the last: broken: ")
