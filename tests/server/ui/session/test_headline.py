"""The sentence about what went wrong."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ray_history.server.ui.session.departures import DepartedNode
from ray_history.server.ui.session.failures import Example, Group
from ray_history.server.ui.session.headline import Findings, Headline, causes
from ray_history.server.ui.session.jobs import Job
from ray_history.server.ui.session.tracebacks import Traceback

SECOND = 10**9
EIGHT = 1_794_772_800 * SECOND
"""20:00:00 UTC"""


def group(
    error: str,
    function: str,
    attempts: int = 1,
    *,
    first: int = 0,
    recovered: int = 0,
    downstream: int = 0,
    node: str | None = None,
    jobs: Sequence[str] = ("01",),
    message: str = "",
) -> Group:
    example = Example("t", 0, function, "NORMAL_TASK", "01", None, node, None, "", Traceback([message], 0))
    start = EIGHT + first * SECOND
    return Group(
        error, function, attempts, attempts, recovered, start, start, node, list(jobs), False, example, downstream
    )


def job(status: str, end: int | None, job_id: str = "01", name: str = "train", reason: str = "") -> Job:
    return Job(job_id, name, "python x.py", status, reason, 0, EIGHT // 10**6 + end * 1000 if end else None, None)


def node(name: str, end: int, *, expected: bool = False, reason: str = "") -> DepartedNode:
    return DepartedNode(name, name, EIGHT + end * SECOND, expected, reason)


RAISED = group("ValueError", "load", 2, first=1, message="ValueError: bad row")
OUT_OF_MEMORY = [group("OUT_OF_MEMORY", "a", 1, first=9), group("OUT_OF_MEMORY", "b", 2, first=5)]
LOST = group("NODE_DIED", "score", 1, first=60, node="gpu-3")


@pytest.mark.parametrize(
    ("findings", "title", "text"),
    [
        (
            Findings(5, [RAISED], [], [job("FAILED", 9)]),
            "train failed at 20:00:09 after load raised ValueError at 20:00:01",
            '"bad row" in load caused 2 of 5 failed attempts.',
        ),
        (
            Findings(5, [RAISED], [], [job("FAILED", 9, "02", "other", "exit code 1"), job("FAILED", 20)]),
            "2 jobs failed; the first, other, failed at 20:00:09",
            "exit code 1",
        ),
        (
            Findings(2, [RAISED], [node("gpu-3", 60)], [job("SUCCEEDED", 90)]),
            "Node gpu-3 was lost at 20:01:00",
            '"bad row" in load caused 2 of 2 failed attempts.',
        ),
        (
            Findings(1, [LOST], [node("gpu-3", 60)], []),
            "Node gpu-3 was lost at 20:01:00",
            'The only failed attempt was in "score" on node gpu-3, which was lost at 20:01:00.',
        ),
        (
            Findings(1, [LOST], [node("gpu-3", 60, expected=True)], []),
            "Tasks were lost with their node at 20:01:00",
            'The only failed attempt was in "score" on node gpu-3, which left at 20:01:00.',
        ),
        (
            Findings(0, [], [node("a", 60, reason="health check failed"), node("b", 61)], []),
            "2 nodes were lost, the first, a, at 20:01:00",
            "health check failed",
        ),
        (
            Findings(4, [*OUT_OF_MEMORY, group("KeyError", "c")], [], []),
            "Tasks began to run out of memory at 20:00:05",
            '3 of 4 failed attempts had this cause, in 2 functions, most of them in "a".',
        ),
        (
            Findings(4, [group("ACTOR_DIED", "f"), group("ODD_ERROR", "g", 3)], [], []),
            "g failed with ODD_ERROR at 20:00:00",
            '"g" caused 3 of 4 failed attempts.',
        ),
    ],
)
def test_the_headline_names_what_happened_first_to_what_matters_most(findings: Findings, title: str, text: str) -> None:
    assert findings.headline() == Headline(title, text)


@pytest.mark.parametrize(
    "findings",
    [
        Findings(0, [], [], []),
        Findings(0, [], [node("a", 60, expected=True)], [job("SUCCEEDED", 9)]),
        Findings(1, [group("ValueError", "flaky", recovered=1)], [], [job("FAILED", None)]),
    ],
)
def test_without_a_lasting_failure_there_is_no_headline(findings: Findings) -> None:
    assert findings.headline() is None


def test_causes_join_functions_that_ray_failed_for_the_same_reason() -> None:
    groups = [
        *OUT_OF_MEMORY,
        group("ValueError", "a", 2),
        group("ValueError", "b", 1, downstream=9),
        group("KeyError", "flaky", 99, recovered=99),
    ]
    assert [(cause.error, len(cause.groups), cause.total) for cause in causes(groups)] == [
        ("ValueError", 1, 10),
        ("OUT_OF_MEMORY", 2, 3),
        ("ValueError", 1, 2),
    ]


def test_the_groups_that_explain_the_failed_job_come_first_and_those_that_recovered_last() -> None:
    many = group("TimeoutError", "fetch", 90, first=1, jobs=["02"])
    recovered = group("ConnectionError", "load", 95, first=1, recovered=95)
    cause = group("ValueError", "evaluate", 1, first=5)
    late = group("KeyError", "report", 50, first=30)
    findings = Findings(236, [recovered, many, late, cause], [], [job("FAILED", 9)])
    assert findings.ordered_groups() == [cause, many, late, recovered]
