"""Warnings about values that come from polled answers: how old they are, and whether the answers were cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ray_history.archive.catalog import read_catalog
from ray_history.archive.layout import endpoint_name
from ray_history.collector.polling.endpoints import UNFINISHED_TASKS
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from ray_history.server.sessions.overview import SessionOverview
from ray_history.server.ui.home.rows import make_row
from tests.history.rebuilt import NODE, START, Event, lifecycle, listed_task, task, task_id
from tests.server.serving import served
from tests.server.ui.written_sessions import SESSION, ran, write_session

SUBMITTED = (("PENDING_ARGS_AVAIL", 1.0), ("SUBMITTED_TO_WORKER", 2.0))
CUT_OFF = [*ran(1, "fine", 0, 5), task(task_id(2), 0, 1), lifecycle(task_id(2), *SUBMITTED)]
RUNNING = listed_task(task_id(2), *SUBMITTED, ("RUNNING", 2.5))
LEDGER: dict[str, Any] = {"role": "head", "ended": "graceful", "events": {"received": 4, "stored": 4}}
ADDRESS = f"/s/default/written/{SESSION}"


def warnings(folder: Path, events: list[Event], ledger: dict[str, Any], path: str, **result: Any) -> dict[str, str]:
    """By listing, with one polled answer."""
    endpoints = {endpoint_name(path): {"result": True, "data": {"result": result}}}
    with served(write_session(folder, events, endpoints=endpoints, ledgers={NODE: ledger}), folder / "cache") as server:
        found: dict[str, str] = server.get(f"{ADDRESS}/_completeness").json["unknown"]
        listed = server.get(f"{ADDRESS}/api/v0/actors").json["data"]["result"]["partial_failure_warning"]
        assert found.get("actors", "") in listed
        return found


def test_tasks_say_how_old_the_poll_is_that_fills_them(tmp_path: Path) -> None:
    asked = {"polled": {UNFINISHED_TASKS.url: {"newest": "answered", "answered": START / 1e9 + 3}}}
    found = warnings(tmp_path, CUT_OFF, LEDGER | asked, UNFINISHED_TASKS.url, total=1, num_filtered=1, result=[RUNNING])
    assert found["tasks"] == (
        "What no event reports of 1 attempt of tasks is shown from the dashboard's list of tasks "
        "(as of 20:00:03 UTC, 2 s before the end)."
    )


@pytest.mark.parametrize(
    ("polled", "said"),
    [
        ([], "Tasks and actors are unknown: no event files were stored."),
        ([RUNNING], "No event files were stored: only tasks in the dashboard's list are known (as of "),
    ],
)
def test_without_events_only_the_tasks_of_a_poll_are_known(
    tmp_path: Path, polled: list[dict[str, Any]], said: str
) -> None:
    endpoints = {endpoint_name(UNFINISHED_TASKS.url): {"data": {"result": {"result": polled}}}} if polled else {}
    store = write_session(tmp_path, [], endpoints=endpoints, ledgers={NODE: LEDGER})
    store.delete_many([info.key for info in store.list("") if "_events/" in info.key])
    with served(store, tmp_path / "cache") as server:
        result = server.get(f"{ADDRESS}/api/v0/tasks").json["data"]["result"]
    assert (result["total"], said in result["partial_failure_warning"]) == (len(polled), True)


def test_tasks_that_a_poll_completes_are_no_reason_for_an_error_in_clients_of_ray(tmp_path: Path) -> None:
    endpoints = {endpoint_name(UNFINISHED_TASKS.url): {"data": {"result": {"total": 1, "result": [RUNNING]}}}}
    with served(
        write_session(tmp_path, CUT_OFF, endpoints=endpoints, ledgers={NODE: LEDGER}), tmp_path / "cache"
    ) as server:
        result = server.get(f"{ADDRESS}/api/v0/tasks").json["data"]["result"]
        assert (result["total"], result["partial_failure_warning"]) == (2, "")


def test_a_poll_that_fills_nothing_is_no_reason_for_a_warning(tmp_path: Path) -> None:
    assert "tasks" not in warnings(tmp_path, CUT_OFF, LEDGER, UNFINISHED_TASKS.url, total=0, num_filtered=0, result=[])


def test_a_list_that_was_cut_says_so(tmp_path: Path) -> None:
    found = warnings(tmp_path, CUT_OFF, LEDGER, UNFINISHED_TASKS.url, num_filtered=4200, result=[RUNNING])
    assert found["tasks"].endswith("The dashboard's list of tasks was cut: 1 of 4,200 rows.")


def test_without_events_each_listing_says_how_old_its_poll_is(tmp_path: Path) -> None:
    silent = {"role": "head", "ended": "graceful", "polled": {"/api/v0/actors?detail=1": {"answered": 1_700_000_005.0}}}
    found = warnings(tmp_path, [], silent, "/api/v0/actors?detail=1&limit=10000", result=[])
    assert found["actors"].startswith("Actors: shown from the dashboard's last answer (as of 22:13:25 UTC")


def test_a_head_that_sends_no_events_is_a_reason_by_itself(tmp_path: Path) -> None:
    worker = LEDGER | {"role": "worker"}
    head = {"role": "head", "ended": "graceful", "silent": START / 1e9 + 60}
    store = write_session(tmp_path, ran(1, "fine", 0, 5), ledgers={NODE: head, "0f" * 28: worker})
    with served(store, tmp_path / "cache") as server:
        completeness = server.get(f"{ADDRESS}/_completeness").json["completeness"]
        assert completeness["state"] == "incomplete"
        assert completeness["reasons"][0].startswith("Ray ran on the head for a minute and sent no event")
    indexer = Indexer(store, Cache(tmp_path / "cache", 1 << 30))
    (session,) = read_catalog(store).sessions
    with indexer.open(session):
        pass
    indexer.summarize(session)
    row = make_row(session, SessionOverview(indexer.summaries.read(session)), "ended", redact=True)
    assert row.completeness.short == "head silent"
