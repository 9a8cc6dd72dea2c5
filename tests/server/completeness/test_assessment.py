"""The judgement of completeness: the share of events, and the reasons in their order."""

from __future__ import annotations

import pytest

from ray_history.server.completeness.assessment import assess
from ray_history.server.completeness.evidence import Evidence, Nodes

WHOLE = {"collectors": 2, "received": 100, "stored": 100}


@pytest.mark.parametrize(
    ("evidence", "share", "short"),
    [
        (Evidence(), None, ["not counted"]),
        (Evidence(collectors=1), None, ["nothing recorded"]),
        (Evidence(collectors=1, has_event_files=False), None, ["nothing recorded"]),
        (Evidence(has_event_files=False), None, ["nothing recorded"]),
        (Evidence(has_event_files=True), None, ["not counted"]),
        (Evidence(collectors=1, has_event_files=True), None, ["not counted"]),
        (Evidence(collectors=1, dropped=5), 0.0, ["Ray dropped 5"]),
        (Evidence(**WHOLE), 1.0, []),
        (Evidence(**WHOLE, export_given_up=True), 1.0, ["GCS exported no events"]),
        (Evidence(**WHOLE, head_silent=True), 1.0, ["head silent"]),
        (Evidence(**WHOLE, dropped=100), 0.5, ["Ray dropped 100"]),
        (Evidence(collectors=1, received=100, stored=75), 0.75, ["25 not stored"]),
        (Evidence(collectors=1, received=100, stored=75, is_live=True), 1.0, []),
        (Evidence(collectors=1, received=100, stored=75, quarantined=25), 1.0, ["25 not understood"]),
        (Evidence(collectors=1, received=10, stored=12), 1.0, []),
        (Evidence(**WHOLE, lost_contact=True, cut_off=Nodes(2)), 1.0, ["lost contact"]),
        (Evidence(**WHOLE, cut_off=Nodes(1)), 1.0, ["1 node cut off"]),
        (Evidence(**WHOLE, cut_off=Nodes(2), is_live=True), 1.0, []),
        (Evidence(**WHOLE, without_files=Nodes(3)), 1.0, ["3 nodes missing"]),
        (
            Evidence(**WHOLE, cut_off=Nodes(1), event_bytes_unsent=1500, log_bytes_unsent=500),
            1.0,
            ["1.5 KB of events left", "500 bytes of logs left", "1 node cut off"],
        ),
        (Evidence(**WHOLE, log_bytes_unsent=500, is_live=True), 1.0, []),
        (Evidence(**WHOLE, log_bytes_lost=2_000_000), 1.0, ["2.0 MB of logs lost"]),
        (Evidence(**WHOLE, metric_blocks_lost=2, series_left_out=5), 1.0, ["metrics lost", "metrics cut"]),
        (Evidence(**WHOLE, problem_count=1, problem="torn"), 1.0, ["1 problem"]),
        (
            Evidence(
                received=90, stored=80, dropped=10, quarantined=1, cut_off=Nodes(1), without_files=Nodes(1),
                log_bytes_lost=5, problem_count=2, problem="x",
            ),
            None,
            ["1 node cut off", "Ray dropped 10", "9 not stored", "1 not understood", "1 node missing",
             "5 bytes of logs lost", "2 problems", "not counted"],
        ),
    ],
)  # fmt: skip
def test_the_share_and_the_reasons(evidence: Evidence, share: float | None, short: list[str]) -> None:
    found = assess(evidence)
    assert found.share == share
    assert [reason.short for reason in found.reasons] == short
    assert found.short == (short[0] if short else "")
    assert found.is_whole == (share == 1 and not short)


def test_only_reasons_that_affect_tables_are_warnings_in_listings() -> None:
    evidence = Evidence(
        received=90, stored=80, dropped=10, quarantined=1, cut_off=Nodes(1), without_files=Nodes(1), log_bytes_lost=5,
        problem_count=2,
    )  # fmt: skip
    affecting = {reason.short for reason in assess(evidence).reasons if reason.concerns_tables}
    assert affecting == {"Ray dropped 10", "9 not stored", "1 not understood", "1 node missing", "2 problems"}


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (Nodes(1), "1 node"),
        (Nodes(1200), "1,200 nodes"),
        (Nodes.named(["gpu-1"]), "Node gpu-1"),
        (Nodes.named(["a", "b"]), "Nodes a, b"),
        (Nodes.named("abcde"), "a, b, c and 2 more nodes"),
    ],
)
def test_nodes_are_named_as_far_as_they_are_known(nodes: Nodes, text: str) -> None:
    assert str(nodes) == text


def test_a_problem_is_quoted_on_one_line() -> None:
    (reason,) = assess(Evidence(**WHOLE, problem_count=1, problem="a\nb" + "x" * 1000)).reasons
    assert "such as: a b" in reason.full
    assert len(reason.full) < 400
