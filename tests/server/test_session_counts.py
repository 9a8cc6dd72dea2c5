"""Every surface gives the same number of tasks, actors and jobs of a session, and the same time at which it started."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history.archive.catalog import read_catalog
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from ray_history.index.summary import Summary
from ray_history.server.formatting import duration
from ray_history.server.sessions.overview import SessionOverview
from ray_history.server.ui.home.rows import Row, make_row
from tests.history.rebuilt import JOB, NODE, actor, actor_life, actor_step, job, job_life, lifecycle, ns, task, task_id
from tests.server.serving import Served, served
from tests.server.ui.markup import Element, parsed
from tests.server.ui.written_sessions import SESSION, failed, raised, ran, write_session

_S = f"/s/default/written/{SESSION}"
FINISHED, FAILED, OTHER = 3, 2, 1
FIRST_EVENT = 40
"""Seconds between the time in the session's name and its first event: its clock is not set to UTC, or it was slow."""


def ray_internal(number: int) -> list[dict[str, object]]:
    """A task of Ray itself, and its failed second attempt."""
    events = [*ran(number, "ping", 50, 51), *failed(number, "ping", 52, 53, raised("ping"), attempt=1)]
    for event in events:
        if "taskDefinitionEvent" in event:
            event["taskDefinitionEvent"]["taskFunc"]["pythonFunctionDescriptor"]["className"] = "JobSupervisor"
    return events


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counts")
    driver = "ff" * 20 + JOB
    events = [
        *(event for number in range(FINISHED) for event in ran(number, "fine", FIRST_EVENT + number, 60)),
        *(event for number in range(10, 10 + FAILED) for event in failed(number, "bad", 45, 50, raised("bad"))),
        *[task(task_id(20), 0, 45), lifecycle(task_id(20), ("RUNNING", 46), node=NODE)],
        *[task(driver, 0, FIRST_EVENT, taskType="DRIVER_TASK"), lifecycle(driver, ("RUNNING", FIRST_EVENT))],
        *ray_internal(30),
        actor(at=FIRST_EVENT, className="JobSupervisor", rayNamespace="SUPERVISOR_ACTOR_RAY_NAMESPACE"),
        actor_life(actor_step("ALIVE", 45, NODE), at=45),
        actor("ac" * 12 + JOB, at=45),
        actor_life(actor_step("ALIVE", 46, NODE), actor="ac" * 12 + JOB, at=46),
        *[job(at=FIRST_EVENT, entrypoint="/x/ray/dashboard/dashboard.py"), job_life("CREATED", FIRST_EVENT)],
        *[job("07000000", FIRST_EVENT), job_life("CREATED", FIRST_EVENT, "07000000")],
    ]
    write_session(folder, events)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Served]:
    with served(write_session(folder, [], "other"), folder / "cache") as running:
        yield running


@pytest.fixture(scope="module")
def page(server: Served) -> Element:
    return parsed(server.get(f"{_S}/_session").body)


@pytest.fixture(scope="module")
def summary(folder: Path) -> Summary:
    store = write_session(folder, [], "another")
    session = read_catalog(store).find("default", "written").sessions[0]
    indexer = Indexer(store, Cache(folder / "summaries", 1 << 30))
    indexer.open(session).close()
    indexer.summarize(session)
    summary = indexer.summaries.read(session)
    assert summary is not None
    return summary


@pytest.fixture(scope="module")
def row(folder: Path, summary: Summary) -> Row:
    session = read_catalog(write_session(folder, [], "another")).find("default", "written").sessions[0]
    return make_row(session, SessionOverview(summary), "ended", redact=False)


def fact(page: Element, name: str) -> str:
    pair = page.one("div", where=lambda div: [part.text for part in div.all("dt")] == [name] and bool(div.all("dd")))
    return pair.one("dd").text


def test_every_surface_counts_the_same_tasks(server: Served, page: Element, summary: Summary, row: Row) -> None:
    total = FINISHED + FAILED + OTHER
    assert sum(summary.tasks.values()) == summary.facts.tasks == total
    assert summary.tasks["FAILED"] == summary.facts.failed_tasks == FAILED
    assert (row.finished, row.failed, row.other) == (FINISHED, FAILED, OTHER)
    assert fact(page, "Duration") == duration(row.duration(0) or 0)
    assert fact(page, "Task attempts") == f"{total} {FAILED} failed"
    assert server.get(f"{_S}/_digest").json["failed_attempts"] == FAILED
    rows = server.get(f"{_S}/api/v0/tasks?exclude_internal=1&raw=1").rows
    assert [sum(each["state"] == state for each in rows) for state in ("FINISHED", "FAILED")] == [FINISHED, FAILED]
    assert len(rows) == total
    summarized = server.get(f"{_S}/api/v0/tasks/summarize?exclude_internal=1&raw=1").json["data"]["result"]
    assert summarized["total"] == total
    bars = [re.findall(r"(\d+) (?:failed|finished)", title.text) for title in page.all("title")]
    assert [sum(int(bar[place]) for bar in bars if len(bar) == 2) for place in (0, 1)] == [FAILED, FINISHED]


def test_every_surface_counts_the_same_actors_and_jobs(
    server: Served, page: Element, summary: Summary, row: Row
) -> None:
    assert (summary.facts.actors, fact(page, "Actors")) == (1, "1")
    assert len(server.get(f"{_S}/api/v0/actors?exclude_internal=1").rows) == 1
    assert (summary.facts.jobs, sum(summary.jobs_by_status.values()), len(summary.jobs)) == (1, 1, 1)
    assert (fact(page, "Jobs"), row.other_jobs) == ("1", 0)
    assert len(server.get(f"{_S}/api/jobs/?exclude_internal=1").json) == 1


def test_every_surface_starts_the_session_at_its_first_event(page: Element, summary: Summary, row: Row) -> None:
    assert summary.facts.start_ns == ns(FIRST_EVENT)
    assert row.started == ns(FIRST_EVENT) // 10**9
    assert fact(page, "Started").startswith(f"20:00:{FIRST_EVENT}")
    assert page.one("div", "tracks").attributes["data-tracks"].startswith(f"{ns(FIRST_EVENT) // 10**6},")
