"""Every format, chunking and damage: complete events are read, and everything else is reported."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_history.archive.errors import Unreachable
from ray_history.archive.event_files import (
    Limits,
    Problem,
    read_event_blocks,
    read_events,
)

from .samples import (
    EVENTS,
    FORMATS,
    MIB,
    array,
    is_object,
    lines,
    ray_event,
    read,
    small,
    small_blocks,
    stored_events,
)


@pytest.mark.parametrize("name", FORMATS)
@given(events=stored_events(), step=small, block=small_blocks)
@settings(max_examples=40, deadline=None)
def test_events_are_read_as_stored_from_every_format_and_chunking(
    name: str, events: list[bytes], step: int, block: int
) -> None:
    assert read(FORMATS[name](events), step=step, limits=Limits(block=block)) == (events, [])


@pytest.mark.parametrize("body", [b"", b"\n \r\n", b"null", b"null\n", b"[]", b" [ \n ] ", b"[][]", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_file_without_events_is_no_problem(body: bytes, pack: Callable[[bytes], bytes]) -> None:
    assert read(pack(body)) == ([], [])


@pytest.mark.parametrize("form", [lines, array])
def test_many_blocks_are_read_in_lists_that_do_not_grow_with_the_file(form: Callable[[list[bytes]], bytes]) -> None:
    events = [ray_event(number, number % 7) for number in range(8000)]
    problems: list[Problem] = []
    blocks = list(read_event_blocks([form(events)], file="node-1", problems=problems))
    assert [event for block in blocks for event in block] == events
    assert problems == []
    assert len(blocks) > 3
    assert all(sum(map(len, block)) < 1.2 * MIB for block in blocks)


def test_an_event_longer_than_a_block_is_still_an_event() -> None:
    long = ray_event(1, transitions=40_000)
    assert len(long) > 2 * MIB
    for form in (lines, array):
        assert read(form([EVENTS[0], long, EVENTS[2]]), step=5000) == ([EVENTS[0], long, EVENTS[2]], [])


def test_events_do_not_keep_the_block_they_came_from() -> None:
    for form in (lines, array):
        body = form([ray_event(number) for number in range(20_000)])
        tracemalloc.start()
        kept = [block[0] for block in read_event_blocks([body], file="node-1", problems=[])]
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(kept) > 10
        assert held < MIB


@st.composite
def damaged(draw: st.DrawFn, form: Callable[[list[bytes]], bytes]) -> tuple[list[bytes], bytes, int]:
    """Events, their file after one or two accidents, and the first byte that changed."""
    events = draw(stored_events())
    body = form(events)
    first = len(body)
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(body)))
        first = min(first, at)
        accident = draw(st.sampled_from(["flip", "cut", "insert", "lose"]))
        if accident == "flip" and at < len(body):
            body = body[:at] + bytes([body[at] ^ 1 << draw(st.integers(0, 7))]) + body[at + 1 :]
        elif accident == "cut":
            body = body[:at]
        elif accident == "insert":
            noise = st.binary(max_size=9) | st.sampled_from([b'"', b"{", b"}", b"[", b"]", b",", b"\n", b"\\", b"},{"])
            body = body[:at] + draw(noise) + body[at:]
        elif accident == "lose":
            body = body[:at] + body[at + draw(st.integers(1, 900)) :]
    return events, body, first


@pytest.mark.parametrize("form", [lines, array])
@given(data=st.data(), step=small, block=small_blocks)
@settings(max_examples=150, deadline=None)
def test_after_any_damage_complete_events_are_read_in_order_and_all_before_it(
    form: Callable[[list[bytes]], bytes], data: st.DataObject, step: int, block: int
) -> None:
    stored, body, first = data.draw(damaged(form))
    events, problems = read(body)
    assert read(body, step=step, limits=Limits(block=block)) == (events, problems)
    position = 0
    for event in events:
        assert is_object(event)
        position = body.index(event, position) + len(event)
    whole, end = 0, 0 if form is lines else 1
    for event in stored:
        end += len(event) + 1
        if end > first:
            break
        whole += 1
    assert events[:whole] == stored[:whole]
    assert all(0 <= problem.offset <= len(body) for problem in problems)


@given(data=st.data(), step=small)
@settings(max_examples=100, deadline=None)
def test_after_any_damage_to_a_gzip_file_only_complete_events_are_read(data: st.DataObject, step: int) -> None:
    form = data.draw(st.sampled_from([lines, array]))
    _, body, _ = data.draw(damaged(lambda events: gzip.compress(form(events))))
    events, problems = read(body)
    assert all(map(is_object, events))
    assert read(body, step=step) == (events, problems)
    assert all(str(problem).count("\n") == 0 for problem in problems)


@given(body=st.binary(max_size=400), start=st.sampled_from([b"", b"[", b"\x1f\x8b\x08\0\0\0\0\0\0\0", b'[{"a":']))
@settings(max_examples=250, deadline=None)
def test_any_bytes_are_read_without_an_exception(body: bytes, start: bytes) -> None:
    events, _ = read(start + body, step=13)
    assert all(map(is_object, events))


@pytest.mark.parametrize("form", [lines, array, lambda events: gzip.compress(lines(events))])
def test_a_store_that_fails_is_not_a_file_that_ends(form: Callable[[list[bytes]], bytes]) -> None:
    def chunks() -> Iterator[bytes]:
        yield form(EVENTS)[:1000]
        raise Unreachable("no answer from the store")

    problems: list[Problem] = []
    with pytest.raises(Unreachable):
        list(read_events(chunks(), file="node-1", problems=problems))
    assert problems == []
