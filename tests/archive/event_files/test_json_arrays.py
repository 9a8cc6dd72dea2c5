"""Events in JSON arrays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ray_history.archive.event_files import (
    Limits,
    Problem,
    read_events,
)

from .samples import (
    EVENTS,
    MIB,
    array,
    kinds,
    ray_event,
    read,
)


def test_elements_before_the_cut_of_an_array_are_read() -> None:
    body = array(EVENTS)
    events, problems = read(body[: body.index(EVENTS[30]) + 300])
    assert events == EVENTS[:30]
    assert kinds(problems) == ["truncated"]
    assert problems[0].offset == body.index(EVENTS[30])


def test_an_unclosed_array_loses_nothing() -> None:
    events, problems = read(array(EVENTS)[:-1])
    assert events == EVENTS
    assert kinds(problems) == ["truncated"]


@pytest.mark.parametrize("element", [b"1", b'"text"', b"null", b"[1]", b'{"a":"\xff"}'])
def test_an_element_that_is_not_an_event_costs_only_itself(element: bytes) -> None:
    events, problems = read(array([b'{"a":1}', element, b'{"b":1}']))
    assert events == [b'{"a":1}', b'{"b":1}']
    assert kinds(problems) == ["not utf-8" if b"\xff" in element else "not an object"]
    assert problems[0].offset == 9


@pytest.mark.parametrize(
    "damage",
    [
        lambda event: event[:-1],
        lambda event: event + b"}",
        lambda event: b"{" + event,
        lambda event: event[:200],
        lambda event: event[200:],
        lambda event: event[:500] + event[700:],
        lambda event: event.replace(b'"severity"', b'severity"'),
        lambda event: event.replace(b'"severity"', b'"severity'),
        lambda event: event.replace(b'"stateTransitions":[', b'"stateTransitions":['[:-1]),
        lambda event: event.replace(b"[", b"[" * 100_000),
        lambda event: event.replace(b"INFO", b"IN\0O"),
        lambda event: event[:0],
        lambda event: event + b" " + b"garbage",
    ],
)
def test_events_after_a_broken_element_are_read_and_no_parts_of_events(
    damage: Callable[[bytes], bytes],
) -> None:
    for step in (11, 1000, MIB):
        events, problems = read(array([*EVENTS[:20], damage(EVENTS[20]), *EVENTS[21:]]), step=step)
        assert [event for event in events if event != EVENTS[20]] == EVENTS[:20] + EVENTS[21:]
        assert problems
        assert set(kinds(problems)) <= {"broken", "truncated"}


def test_data_after_an_array_are_reported_unless_they_are_an_array() -> None:
    assert read(array(EVENTS[:2]) + b"\n" + array(EVENTS[2:4])) == (EVENTS[:4], [])
    events, problems = read(array(EVENTS[:2]) + b" garbage")
    assert events == EVENTS[:2]
    assert [(problem.kind, problem.offset) for problem in problems] == [("garbage", len(array(EVENTS[:2])) + 1)]


def test_a_comma_before_the_closing_bracket_is_reported_and_costs_nothing() -> None:
    events, problems = read(b"[" + b",".join(EVENTS) + b",]")
    assert events == EVENTS
    assert kinds(problems) == ["broken"]


def test_an_element_that_is_too_long_is_skipped_and_later_events_are_read() -> None:
    long = ray_event(1, transitions=1000)
    for step in (100, MIB):
        for block in (100, MIB):
            limits = Limits(max_event=len(EVENTS[0]) + 10, block=block)
            events, problems = read(array([EVENTS[0], long, *EVENTS[2:]]), step=step, limits=limits)
            assert events == [EVENTS[0], *EVENTS[2:]]
            assert kinds(problems) == ["too long"]


def test_an_array_of_damage_only_is_given_up_and_reported() -> None:
    events, problems = read(array([EVENTS[0] + b"}", *EVENTS[1:4]] * 200))
    assert len(events) == 100 * 4 + 1
    assert kinds(problems[:100]) == ["broken"] * 100
    assert "too broken" in str(problems[-1])


def test_msgspec_reports_where_a_value_ends_or_breaks() -> None:
    """The reader of damaged arrays depends on these positions in msgspec's messages."""
    from ray_history.archive.event_files.json_arrays import value_end

    assert value_end(memoryview(b'{"a":1} ,{"b"')) == (8, None)
    assert value_end(memoryview(b'{"a":1}')) == (7, None)
    assert value_end(memoryview(b'{"a":[1')) == (7, "Input data was truncated")
    end, fault = value_end(memoryview(b'{"a":x},{"b":1}'))
    assert end == 5
    assert fault


def test_a_session_name_that_is_not_text_does_not_stop_the_rescue() -> None:
    problems: list[Problem] = []
    body = b'[x, {"sessionName":"\xc5("}, {"sessionName":"s"}]'
    assert list(read_events([body], file="f", problems=problems)) == [b'{"sessionName":"s"}']
    assert problems


def test_a_file_with_too_much_damage_is_given_up_and_reported() -> None:
    problems: list[Problem] = []
    assert list(read_events([b"x\n" * 300_000], file="f", problems=problems)) == []
    assert "too much damage; the rest of the file was not read" in problems[-1].detail
