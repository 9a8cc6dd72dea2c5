"""Rows of the list, from a summary or from ledgers alone."""

from __future__ import annotations

import msgspec
import pytest

from ray_history.archive.catalog import Session
from ray_history.archive.layout import Cluster
from ray_history.archive.ledger import Ledger
from ray_history.index.summary import Failure, Job, Summary
from ray_history.server.sessions.overview import SessionOverview
from ray_history.server.ui.home.rows import Row, make_row, search_fields
from tests.server.ui.fleets import Made, summary_of

NOW = 1_794_800_000.0
SESSION = Session(Cluster("ml", "train-7", "rayjob", "train"), "session_7", int(NOW - 3600))


def job(status: str, start: int | None = 0, entrypoint: str = "python x.py", message: str = "") -> Job:
    return Job("01", f"{status.lower()}-{start}", entrypoint, status, message, start, None)


def summary(**changes: object) -> Summary:
    made = Made(SESSION.cluster, SESSION.name, NOW - 3600, "ended", "python x.py", "s-00001", 3, "boom", "2.60.0")
    return msgspec.structs.replace(summary_of(made, NOW), **changes)


def row_of(found: Summary, *, redact: bool = False) -> Row:
    return make_row(SESSION, SessionOverview(found), "ended", redact=redact)


def test_a_session_without_summary_shows_its_ledgers() -> None:
    ledgers = (Ledger(written=5.0), Ledger(written=9.0))
    row = make_row(SESSION, SessionOverview(None, ledgers), "live", redact=True)
    assert (row.is_indexed, row.nodes, row.last_seen) == (False, 2, 9.0)
    assert set(row.fields) == {"cluster", "namespace", "owner", "session"}


def test_a_session_without_anything_is_not_indexed_yet() -> None:
    row = make_row(SESSION, SessionOverview(), "unknown", redact=True)
    assert (row.nodes, row.last_seen, row.completeness.short) == (None, None, "not indexed yet")


def test_a_running_cluster_is_live_and_not_stored() -> None:
    row = Row.running(SESSION, "2.60.0")
    assert (row.state, row.ray, row.completeness.short) == ("live", "2.60.0", "not stored yet")
    assert row.fields["owner"] == "rayjob train"


@pytest.mark.parametrize(
    ("statuses", "first", "others", "failed_others"),
    [
        (["SUCCEEDED"], "SUCCEEDED", 0, 0),
        (["SUCCEEDED", "FAILED"], "FAILED", 1, 0),
        (["FAILED", "RUNNING", "FAILED"], "RUNNING", 2, 2),
        (["PENDING", "FAILED"], "PENDING", 1, 1),
        (["STOPPED", "SUCCEEDED"], "SUCCEEDED", 1, 0),
    ],
)
def test_the_first_job_is_the_one_that_matters_most(
    statuses: list[str], first: str, others: int, failed_others: int
) -> None:
    jobs = [job(status, start) for start, status in enumerate(statuses)]
    counts = {status: statuses.count(status) for status in statuses}
    row = row_of(summary(jobs=jobs, jobs_by_status=counts))
    assert row.job is not None
    assert (row.job.status, row.other_jobs, row.other_failed) == (first, others, failed_others)


def test_counts_come_from_the_summary() -> None:
    row = row_of(summary(tasks={"FINISHED": 5, "FAILED": 2, "RUNNING": 1, "PENDING": 1}, jobs_by_status={"FAILED": 1}))
    assert (row.finished, row.failed, row.other) == (5, 2, 2)
    assert row.has_failures
    assert not row_of(summary(tasks={"FINISHED": 5}, jobs_by_status={})).has_failures


def test_search_fields_cover_jobs_and_errors() -> None:
    found = summary(
        jobs=[job("FAILED", 1, "python Train.py", "exit code 1"), job("SUCCEEDED", 2, "python eval.py", "ignored")],
        failures=[Failure("OUT_OF_MEMORY", "score", "", 2), Failure("TASK_EXECUTION_EXCEPTION", "load", "KeyError", 1)],
    )
    fields = search_fields(SESSION, found)
    assert fields["job"].splitlines() == ["python train.py (failed-1)", "python eval.py (succeeded-2)", "01", "01"]
    assert fields["error"].splitlines() == [
        "score: out_of_memory",
        "load: keyerror",
        "exit code 1",
        "out_of_memory",
        "task_execution_exception",
    ]
    assert fields["ray"] == "2.60.0"


def test_secrets_are_neither_shown_nor_searchable() -> None:
    found = summary(jobs=[job("FAILED", 1, "python x.py --password hunter2")])
    assert "hunter2" not in str(row_of(found, redact=True)) + str(row_of(found, redact=True).fields)
    assert "hunter2" in row_of(found).fields["job"]


@pytest.mark.parametrize(("state", "seconds"), [("live", 3600.0), ("ended", 600.0)])
def test_the_duration_of_a_live_session_ends_now(state: str, seconds: float) -> None:
    row = Row(SESSION, state, NOW - 3000)  # type: ignore[arg-type]
    assert row.duration(NOW) == seconds
    assert Row(SESSION, "unknown", None).duration(NOW) is None
