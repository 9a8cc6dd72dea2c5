"""Events are sorted by type, and each one gets into the tables once, whatever its line looks like."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_history.history.build.event_lines import FILES, OTHERS, EventLines
from tests.history.rebuilt import (
    Event,
    actor,
    actor_task,
    actor_task_id,
    event,
    lifecycle,
    node,
    profile,
    rebuild,
    span,
    task,
    task_id,
)

ONE = task_id(1)
EVENTS = [
    task(ONE),
    lifecycle(ONE, ("RUNNING", 1), ("FINISHED", 2)),
    profile(ONE, span("task::work", 1, 2)),
    actor_task(actor_task_id(2)),
    actor(),
    node(),
]


def sorted_into(stem: Path, *pieces: bytes) -> dict[str, list[bytes]]:
    lines = EventLines(stem)
    with lines.writing():
        for piece in pieces:
            lines.add(piece)
    return {name: file.read_bytes().splitlines() for name, file in lines.files.items()}


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")], ids=["loose", "tight"])
def test_each_type_of_task_event_has_its_file(tmp_path: Path, separators: tuple[str, str]) -> None:
    lines = [json.dumps(event, separators=separators).encode() for event in EVENTS]
    found = sorted_into(tmp_path / "batch", b"\n".join(lines))
    assert found == {name: [line for line in lines if f'"{name}"'.encode() in line] for name in FILES[:-1]} | {
        OTHERS: lines[-2:]
    }


@settings(deadline=None)
@given(st.lists(st.integers(0, 4000), max_size=8), st.lists(st.binary(min_size=1).filter(lambda b: b"\n" not in b)))
def test_no_line_is_lost_at_the_bounds_of_pieces(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], odd: list[bytes]
) -> None:
    lines = [*(json.dumps(event).encode() for event in EVENTS), *odd]
    text = b"\n".join(lines)
    ends = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    found = sorted_into(tmp_path_factory.mktemp("lines") / "batch", *(text[a:b] for a, b in itertools.pairwise(ends)))
    kept = [line for file in found.values() for line in file]
    assert sorted(b"\n".join(kept).split()) == sorted(text.split())


def test_a_line_can_be_longer_than_a_block(tmp_path: Path) -> None:
    long = json.dumps(task(ONE, callSite="x" * 5_000_000)).encode()
    after = json.dumps(node()).encode()
    text = long + b"\n" + after
    found = sorted_into(tmp_path / "batch", *(text[at : at + 65536] for at in range(0, len(text), 65536)))
    assert (found["TASK_DEFINITION_EVENT"], found[OTHERS]) == ([long], [after])


def test_rewinding_removes_lines(tmp_path: Path) -> None:
    lines = EventLines(tmp_path / "batch")
    with lines.writing():
        lines.add(json.dumps(EVENTS[0]).encode())
        lines.end_file()
        before = lines.position()
        lines.add(b"\n".join(json.dumps(event).encode() for event in EVENTS) * 1000)
        lines.rewind(before)
        lines.add(json.dumps(EVENTS[-1]).encode())
    kept = {name: [json.loads(line) for line in file.read_text().splitlines()] for name, file in lines.files.items()}
    assert {name: events for name, events in kept.items() if events} == {
        "TASK_DEFINITION_EVENT": [EVENTS[0]],
        OTHERS: [EVENTS[-1]],
    }


def misleading(event: Event) -> bytes:
    """An event that names another type before its own."""
    return json.dumps({"extra": {"eventType": "TASK_LIFECYCLE_EVENT"}} | event).encode()


@pytest.mark.parametrize(
    "lines",
    [
        [misleading(event) for event in EVENTS],
        [json.dumps(event, separators=(",", " : ")).encode() for event in EVENTS],
        [json.dumps(EVENTS[0]).encode(), *(json.dumps(event, separators=(",", ":")).encode() for event in EVENTS[1:])],
    ],
    ids=["fooled", "spaced", "mixed"],
)
def test_lines_in_the_wrong_file_are_read(tmp_path: Path, lines: list[bytes]) -> None:
    plain, odd = rebuild(tmp_path, EVENTS), rebuild(tmp_path, lines)
    assert odd.everything() == plain.everything()
    assert (odd.counts.by_type, odd.counts.dropped) == (plain.counts.by_type, 0)


def test_events_of_unknown_types_are_counted(tmp_path: Path) -> None:
    built = rebuild(tmp_path, [*EVENTS, event("DREAM_EVENT", {"of": "sheep"})])
    assert built.counts.by_type["DREAM_EVENT"] == 1
