"""Marks in the files of workers are assigned to tasks only where no other assignment is possible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.server.logs.task_marks import BeforeMark, Mark, Part, Run, assign, find_marks
from tests.fuzz.growth import assert_linear

LOG = (
    ":job_id:02000000\n"
    ":task_name:say\nsay 0\n"
    ":task_name:half\nno newline"
    ":task_name:say\nsay 1\n"
    "  not :task_name\n"
    ":task_name:a näme\nof two lines\nthe end\n"
).encode()
MARKS = [Mark(17, b"say"), Mark(38, b"half"), Mark(64, b"say"), Mark(102, "a näme".encode())]
SIZE = len(LOG)


@pytest.mark.parametrize("size", [1, 2, 7, 16, 1000])
def test_marks_are_found_whatever_the_pieces(size: int) -> None:
    assert list(find_marks(LOG[at : at + size] for at in range(0, SIZE, size))) == MARKS


def test_a_long_line_of_marks_is_searched_once() -> None:
    assert_linear(lambda text: list(find_marks([text])), lambda size: b":task_name:" * (size // 11))


def test_what_is_too_long_for_a_name_is_no_mark() -> None:
    pieces = [b":task_name:", *[b"x" * 30_000] * 5, b"\n:task_name:f\n"]
    assert list(find_marks(pieces)) == [Mark(150_012, b"f")]


@pytest.mark.parametrize("size", [1, 2, 7, 16, 1000])
def test_output_that_grows_ends_before_the_next_mark(size: int) -> None:
    output, written, most_held = BeforeMark(), b"", 0
    for at in range(32, SIZE, size):
        written += output.feed(LOG[at : at + size])
        if output.is_over:
            break
        most_held = max(most_held, len(output.held))
    assert (written, output.is_over, output.held) == (b"say 0\n", True, b"")
    assert most_held <= len(":task_name:half")


def test_output_is_held_back_only_where_a_mark_may_begin() -> None:
    output = BeforeMark()
    assert output.feed(b"one :task") + output.held == b"one :task"
    assert output.held == b":task"
    assert output.feed(b"s\n") == b":tasks\n"
    assert (output.held, output.is_over) == (b"", False)


def run(task: str, name: str, *, has_ended: bool = True, start: int | None = None, end: int | None = None) -> Run:
    return Run(task, 0, name, has_ended, start, end)


def assigned(*runs: Run) -> dict[str, tuple[int, int | None]]:
    return {task: tuple(part) for (task, _), part in assign(MARKS, runs, SIZE).items()}


FIRST, HALF, SECOND, NAMED = run("1", "say"), run("2", "half"), run("3", "say()"), run("4", "a näme\nof two lines")


def test_tasks_have_the_marks_in_the_order_of_their_start() -> None:
    assert assigned(FIRST, HALF, SECOND, NAMED) == {"1": (32, 38), "2": (54, 64), "3": (79, 102), "4": (134, SIZE)}


@pytest.mark.parametrize(
    ("runs", "known"),
    [
        ([FIRST, HALF, NAMED], {"1", "2", "4"}),  # which was the other `say` does not matter
        ([FIRST], set()),
        ([HALF], {"2"}),
        ([FIRST, SECOND], {"1", "3"}),
        ([NAMED, HALF], set()),  # not in this order
        ([HALF, HALF], set()),
        ([run("5", "never marked"), HALF], set()),
        ([], set()),
    ],
)
def test_a_task_whose_mark_may_be_another_has_no_output(runs: list[Run], known: set[str]) -> None:
    assert assigned(*runs).keys() == known


def test_a_known_start_or_end_decides_between_marks() -> None:
    assert assigned(run("1", "say", end=38)) == {"1": (32, 38)}
    assert assigned(run("3", "say", end=85), NAMED) == {"3": (79, 85), "4": (134, SIZE)}
    assert assigned(run("3", "say", start=79), HALF) == {"3": (79, 102)}, "it did not run after half"
    assert assigned(run("1", "other", end=38)) == {}, "the last mark before its end has another name"


def test_between_known_tasks_the_others_are_assigned() -> None:
    told = run("2", "half", start=54)
    assert assigned(FIRST, told, SECOND)["3"] == (79, 102)
    assert assigned(told, SECOND) == {"2": (54, 64), "3": (79, 102)}


def test_a_task_that_its_worker_did_not_end_has_the_rest_of_the_file() -> None:
    assert assigned(HALF, run("4", "a näme\nof two lines", has_ended=False))["4"] == (134, None)


def test_the_last_task_of_a_killed_worker_counts_if_it_has_the_only_mark_left() -> None:
    killed = run("4", "a näme\nof two lines", has_ended=False)._replace(is_certain=False)
    assert assigned(FIRST, HALF, SECOND, killed)["4"] == (134, None)
    assert assigned(FIRST, HALF, SECOND, NAMED, killed).keys() == {"1", "2", "3", "4"}, "it did not begin"
    assert assigned(HALF, killed).keys() == {"2"}, "other tasks are unknown"


def test_the_mark_of_a_running_task_may_be_missing() -> None:
    runs = [FIRST, HALF, SECOND, NAMED, run("5", "later", has_ended=False)]
    assert assigned(*runs).keys() == {"1", "2", "3", "4"}


@given(st.lists(st.sampled_from("ab"), max_size=8), st.data())
def test_no_task_gets_the_output_of_another(names: list[str], data: st.DataObject) -> None:
    """Whichever attempts are unknown, and whatever is known of the others."""
    size, marks, truth, runs = 0, [], {}, []
    for number, name in enumerate(names):
        token = f":task_name:{name}\n".encode()
        begin = size + len(token)
        end = begin + data.draw(st.integers(0, 3))
        marks.append(Mark(size, name.encode()))
        truth[str(number), 0] = Part(begin, end)
        told = data.draw(st.sampled_from(["nothing", "start", "end", "both", "unknown"]))
        if told != "unknown":
            start_told, end_told = told in ("start", "both"), told in ("end", "both")
            runs.append(run(str(number), name, start=begin if start_told else None, end=end if end_told else None))
        size = end
    parts = assign(marks, runs, size)
    assert parts.items() <= truth.items()
    if len(runs) == len(names):
        assert parts == truth
