"""Which answers of the dashboard are stored and when it is polled; polling never disturbs a cluster."""

from __future__ import annotations

import json
import logging
import os
import sysconfig
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive.errors import Unreachable
from ray_history.archive.layout import Cluster, endpoint_name
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.archive.stores.memory import MemorySettings
from ray_history.collector import polling
from ray_history.collector.destination import Destination
from ray_history.collector.ledger import LedgerBook
from ray_history.collector.node.identity import RayNode
from ray_history.collector.polling import ENDPOINTS, Poller, PollReport, has_content, with_extras
from ray_history.collector.polling.agent_metrics import scrape
from ray_history.collector.polling.dashboard_client import Dashboard
from ray_history.collector.polling.endpoints import ALL_TASKS, UNFINISHED_TASKS
from ray_history.collector.polling.memory import LARGE, SMALL
from tests.support.captured import captured
from tests.support.ray_cluster import RayCluster
from tests.support.ray_versions import needs_ray

from .dashboard_stand_in import (
    ACTORS,
    JOBS,
    LOGICAL_ACTORS,
    NODES,
    OLD_TRAIN,
    PLACEMENT_GROUPS,
    RUNTIME_ENVS,
    SERVE,
    SUMMARY,
    TRAIN,
    DashboardStandIn,
    datasets,
    job,
    rows,
    soon,
)

SESSION = "session_2026-11-15_20-55-36_563127_31460"
NO_APPLICATIONS: dict[str, Any] = {"controller_info": {}, "proxies": {}, "applications": {}}


class Bench:
    """A poller between a stand-in and a store in memory."""

    def __init__(
        self,
        ray: DashboardStandIn,
        *,
        extra: tuple[str, ...] = (),
        token: str | None = None,
        store: Store | None = None,
    ) -> None:
        self.ray = ray
        self.store = store or open_store(MemorySettings(f"polling-{id(self)}-{time.monotonic_ns()}"))
        self.destination = Destination(self.store, Cluster("default", "demo"))
        self.token = token
        self.poller = self.new_poller(extra)

    def new_poller(self, extra: tuple[str, ...] = ()) -> Poller:
        return Poller(self.destination, Dashboard(self.ray.url, lambda: self.token), extra_endpoints=extra)

    def poll(self, times: int = 1, session: str = SESSION) -> PollReport:
        for _ in range(times):
            report = self.poller.poll(session, deadline=soon())
        return report

    def final(self, session: str = SESSION) -> PollReport:
        return self.poller.final_poll(session, deadline=soon())

    def stored(self, session: str = SESSION) -> dict[str, bytes]:
        """The stored answers, by the last part of their keys."""
        prefix = self.destination.endpoint(session, "/x").rpartition("/")[0]
        return {found.key.rpartition("/")[2]: self.store.get(found.key) for found in self.store.list(prefix)}

    def body(self, url: str, session: str = SESSION) -> Any:
        """The stored answer of a URL, decoded; None if there is none."""
        found = self.stored(session).get(endpoint_name(url))
        return None if found is None else json.loads(found)


@pytest.fixture
def ray() -> Iterator[DashboardStandIn]:
    with DashboardStandIn() as stand_in:
        yield stand_in


@pytest.fixture
def bench(ray: DashboardStandIn) -> Bench:
    return Bench(ray)


# Keys ----------------------------------------------------------------------------------------------------------------


def test_the_keys_are_those_that_a_history_server_looks_for(bench: Bench) -> None:
    bench.poll()
    expected = {name: body for name, body in captured().polled.items() if name in bench.stored()}
    # The two lists without a query are parts of those with details; a server derives them.
    assert captured().polled.keys() - expected.keys() == {"restful__api__v0__workers", "restful__api__v0__runtime_envs"}
    assert {name: bench.stored()[name] for name in expected} == expected
    added = {"restful__events", *(endpoint_name(url) for url in (NODES, ACTORS, LOGICAL_ACTORS, UNFINISHED_TASKS.url))}
    assert bench.stored().keys() - expected.keys() == added


def test_every_key_fits_into_a_directory(ray: DashboardStandIn, tmp_path: Path) -> None:
    """MinIO, too, has names of at most 255 bytes."""
    bench = Bench(ray, store=DirectorySettings(tmp_path).open())
    report = bench.poll()
    assert (report.failed, report.failures) == (0, {})
    assert bench.body(UNFINISHED_TASKS.url) == ray.answers[UNFINISHED_TASKS.url]


def test_the_stand_in_answers_in_the_shapes_of_a_real_ray(ray: DashboardStandIn) -> None:
    assert job("01000000", "RUNNING").keys() == json.loads(captured().polled["restful__api__jobs"])[0].keys()
    live = json.loads(captured().polled[endpoint_name(PLACEMENT_GROUPS)])
    assert rows()["data"]["result"].keys() == live["data"]["result"].keys()


def test_requests_bypass_rays_cache_and_are_stored_under_the_plain_key(bench: Bench) -> None:
    bench.poll()
    uncached = {url for url in bench.ray.requests if "nocache=1" in url}
    assert uncached == {
        "/nodes?view=summary&nocache=1",
        "/events?nocache=1",
        "/logical/actors?nocache=1",
        *(f"/nodes/{node}?nocache=1" for node in bench.ray.nodes),
    }
    assert not any("nocache" in name for name in bench.stored())


def test_extra_endpoints_come_after_the_built_in_ones_once_each_and_in_their_order() -> None:
    found = with_extras(["/b", " /a ", "", "/b/", TRAIN, "c?x=1", "http://elsewhere/", "/has space"])
    assert found[: len(ENDPOINTS)] == ENDPOINTS
    assert [endpoint.url for endpoint in found[len(ENDPOINTS) :]] == ["/b", "/a", "/c?x=1"]


def test_the_answer_of_an_extra_endpoint_is_stored_unchanged(ray: DashboardStandIn) -> None:
    ray.answers["/metrics/text"] = b"# not JSON\n"
    ray.answers["/nothing"] = b"  \n"
    bench = Bench(ray, extra=("/metrics/text", "/nothing"))
    assert bench.poll().failed == 0
    assert bench.stored()["restful__metrics__text"] == b"# not JSON\n"
    assert "restful__nothing" not in bench.stored()


def test_actors_are_polled_though_events_describe_them(bench: Bench) -> None:
    bench.poll(8)
    assert [bench.ray.asked(url) for url in (ACTORS, UNFINISHED_TASKS.url, LOGICAL_ACTORS)] == [8, 8, 2]
    bench.final()
    assert bench.ray.asked(LOGICAL_ACTORS) == 3
    assert bench.body(ACTORS) == bench.ray.answers[ACTORS]


def test_the_page_of_actors_follows_their_list(bench: Bench) -> None:
    bench.poll(2)
    assert bench.ray.asked(LOGICAL_ACTORS) == 1
    bench.ray.answers[ACTORS] = rows({"actor_id": "a1", "state": "DEAD"})
    bench.ray.answers[LOGICAL_ACTORS]["data"]["actors"]["a1"]["state"] = "DEAD"
    bench.poll()
    assert json.loads(bench.stored()["restful__logical__actors"])["data"]["actors"]["a1"]["state"] == "DEAD"
    bench.ray.answers[LOGICAL_ACTORS]["data"]["actors"]["large"] = {"name": "x" * (1 << 20)}
    bench.poll(2)  # the second of these is due anyhow
    requested = bench.ray.asked(LOGICAL_ACTORS)
    bench.ray.answers[ACTORS] = rows({"actor_id": "a1", "state": "DEAD"}, {"actor_id": "a2", "state": "ALIVE"})
    bench.poll()
    assert bench.ray.asked(LOGICAL_ACTORS) == requested == 3, "a large page is requested every fourth time only"


@pytest.mark.parametrize(
    ("version", "bytes_of_one", "requests"),
    [
        ("2.60.0", 0, 0),
        ("2.55.1", 0, 0),
        ("3.0.0.dev0", 0, 0),
        ("nightly", 0, 0),
        ("2.54.1", 0, 7),
        ("2.49.2", SMALL, 2),
        ("2.49.2", LARGE, 1),
    ],
)
def test_all_tasks_of_a_ray_that_sends_few_spans_are_polled_the_rarer_the_larger_their_list_is(
    bench: Bench, version: str, bytes_of_one: int, requests: int
) -> None:
    bench.ray.answers["/api/version"] = {"version": "4", "ray_version": version, "session_name": SESSION}
    bench.ray.answers[ALL_TASKS.url] = rows({"task_id": "t1", "name": "x" * bytes_of_one})
    bench.poll(8)  # the first one finds the version
    assert bench.ray.asked(ALL_TASKS.url) == requests
    bench.final()
    assert bench.ray.asked(ALL_TASKS.url) == requests + bool(requests)
    assert (bench.body(ALL_TASKS.url) is not None) == bool(requests)


def test_tasks_that_ended_are_not_kept_as_running(bench: Bench) -> None:
    url = UNFINISHED_TASKS.url
    bench.poll()
    bench.ray.answers[url] = rows()
    bench.poll(2)
    assert bench.body(url) != rows(), "a cluster that shuts down may give two empty answers"
    bench.poll()
    assert bench.body(url) == rows()


# Outcomes ------------------------------------------------------------------------------------------------------------


def test_the_outcomes_of_requests_are_told_apart(bench: Bench) -> None:
    bench.ray.answers["/timezone"] = 503, b"busy"
    bench.ray.answers["/events"] = b"<html>"
    bench.ray.answers[SERVE] = 501, b"not installed"
    report = bench.poll()
    outcomes = {url: list(found.items()) for url, found in report.outcomes.items()}
    assert outcomes[JOBS] == outcomes[SERVE] == outcomes["/nodes/{}"] == [("answered", "")]
    assert outcomes["/timezone"] == [("failed", "answered with status 503")]
    assert outcomes["/events"] == [("failed", "not an answer of Ray")]
    assert report.outcomes.keys() == set(bench.poller.urls)


@pytest.mark.parametrize("status", [401, 403])
def test_a_dashboard_that_refuses_says_so_at_each_endpoint(bench: Bench, status: int) -> None:
    bench.ray.token, bench.ray.refuses_with = "secret", status
    (outcome,) = bench.poll().outcomes[JOBS].items()
    assert outcome[0] == "refused"
    assert str(status) in outcome[1]


def test_a_dashboard_that_hangs_and_one_that_is_away_differ(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray_history.collector.polling.cycle.REQUEST_SECONDS", 0.3)
    bench.ray.delays[JOBS] = 30
    assert list(bench.poll().outcomes[JOBS]) == ["timed out"]
    bench.poller = Poller(bench.destination, Dashboard("http://127.0.0.1:1", lambda: None))
    assert list(bench.poll().outcomes[JOBS]) == ["unreachable"]


def test_the_ledger_has_the_outcomes_and_what_was_never_asked(bench: Bench, tmp_path: Path) -> None:
    book = LedgerBook(tmp_path / "ledger.json")
    bench.ray.token = "secret"
    book.note_polls(SESSION, bench.poller.urls, bench.poll().outcomes)
    polled = book.session(SESSION).polled
    assert polled[JOBS].outcome == "refused"
    assert polled["/nodes/{}"].outcome == "never asked", "the nodes are not known"
    bench.token = "secret"
    book.note_polls(SESSION, bench.poller.urls, bench.poll().outcomes)
    assert (polled[JOBS].outcome, list(polled[JOBS].since)) == ("answered", ["refused", "answered"])
    assert polled.keys() == set(bench.poller.urls)


@pytest.mark.parametrize(("version", "is_asked"), [("2.52.1", True), ("2.60.0", False)])
def test_the_ledger_has_what_only_old_versions_are_asked(
    bench: Bench, tmp_path: Path, version: str, is_asked: bool
) -> None:
    book = LedgerBook(tmp_path / "ledger.json")
    bench.ray.answers["/api/version"] = {"version": "4", "ray_version": version, "session_name": SESSION}
    bench.poll()
    book.note_polls(SESSION, bench.poller.urls, bench.poll().outcomes)
    polled = book.session(SESSION).polled
    assert (ALL_TASKS.url in polled) is is_asked
    assert polled["/events"].outcome == "answered", "which comes after it"


# What is written -----------------------------------------------------------------------------------------------------


def test_a_body_is_written_when_it_changed_and_only_then(bench: Bench) -> None:
    first = bench.poll()
    assert (first.stored, first.unchanged, first.failed) == (len(bench.stored()), 0, 0)
    assert first.bytes == sum(map(len, bench.stored().values()))
    second = bench.poll()
    assert (second.stored, second.bytes, second.failed) == (0, 0, 0)
    bench.ray.answers[SUMMARY] = {"result": True, "data": {"summary": [{"now": 1}]}}
    assert bench.poll().stored == 1


def test_one_time_endpoints_are_polled_until_they_are_stored(bench: Bench) -> None:
    timezone = bench.ray.answers.pop("/timezone")
    bench.poll(2)
    bench.ray.answers["/timezone"] = timezone
    bench.poll(3)
    assert bench.ray.asked("/timezone") == 3
    assert bench.ray.asked("/api/version") == 1
    assert bench.body("/timezone")["offset"] == "+00:00"


def test_answers_that_are_not_of_ray_are_not_stored(bench: Bench) -> None:
    bench.ray.answers[PLACEMENT_GROUPS] = b"<html>please log in</html>"
    bench.ray.answers[RUNTIME_ENVS] = {"result": False, "msg": "GCS is down", "data": {}}
    bench.ray.answers[JOBS] = {"error": "not a list"}
    bench.ray.answers["/api/cluster_status"] = 503, b"later"
    bench.ray.answers["/events"] = b""
    report = bench.poll()
    assert report.failed == 5
    assert report.failures == {
        **dict.fromkeys((PLACEMENT_GROUPS, RUNTIME_ENVS, JOBS, "/events"), "not an answer of Ray"),
        "/api/cluster_status": "answered with status 503",
    }
    assert not {endpoint_name(url) for url in report.failures} & bench.stored().keys()


@pytest.mark.parametrize(
    ("body", "path", "expected"),
    [
        (b'{"datasets": [1]}', ("datasets",), True),
        (b'{"datasets": []}', ("datasets",), False),
        (b'{"datasets": null}', ("datasets",), False),
        (b"{}", ("datasets",), False),
        (b'{"applications": {"a": {}}}', ("applications",), True),
        (b'{"applications": {}}', ("applications",), False),
        (b"[]", (), False),
        (b"[{}]", (), True),
        (b"", (), None),
        (b'{"datasets": [1}', ("datasets",), None),
        (b"[1]", ("datasets",), None),
        (b'{"result": false, "data": {"events": {"a": 1}}}', ("data", "events"), None),
    ],
)
def test_has_content(body: bytes, path: tuple[str, ...], expected: bool | None) -> None:
    assert has_content(body, path) is expected


@pytest.mark.parametrize(
    ("url", "empty"), [(SERVE, NO_APPLICATIONS), (PLACEMENT_GROUPS, rows())], ids=["serve", "placement groups"]
)
def test_an_empty_answer_becomes_the_truth_with_the_third_in_a_row(bench: Bench, url: str, empty: Any) -> None:
    bench.poll()
    full, bench.ray.answers[url] = bench.ray.answers[url], empty
    bench.poll(2)
    assert bench.stored()[endpoint_name(url)] == full
    bench.poll()
    assert bench.body(url) == empty
    bench.ray.answers[url] = full
    bench.poll()
    assert bench.stored()[endpoint_name(url)] == full


def test_empties_are_counted_from_the_last_full_answer(bench: Bench) -> None:
    bench.poll()
    full = bench.ray.answers[SERVE]
    for answer in (NO_APPLICATIONS, NO_APPLICATIONS, full, NO_APPLICATIONS, NO_APPLICATIONS):
        bench.ray.answers[SERVE] = answer
        bench.poll()
    assert bench.stored()[endpoint_name(SERVE)] == full


@pytest.mark.parametrize("url", [RUNTIME_ENVS, NODES, "/api/v0/workers?detail=1&limit=10000"])
def test_lists_that_only_forget_never_become_empty(bench: Bench, url: str) -> None:
    bench.poll()
    before, bench.ray.answers[url] = bench.body(url), rows()
    bench.poll(5)
    assert bench.body(url) == before


def test_an_empty_answer_may_be_the_first_one(bench: Bench) -> None:
    bench.ray.answers[SERVE], bench.ray.answers[JOBS] = NO_APPLICATIONS, []
    assert bench.poll().failed == 0
    assert (bench.body(SERVE), bench.body(JOBS)) == (NO_APPLICATIONS, [])
    assert bench.poll().stored == 0


def test_a_restarted_collector_does_not_replace_full_answers_by_empty_ones(bench: Bench) -> None:
    bench.poll()
    full, bench.ray.answers[SERVE] = bench.ray.answers[SERVE], NO_APPLICATIONS
    bench.poller = bench.new_poller()
    bench.poll(2)
    assert bench.stored()[endpoint_name(SERVE)] == full
    bench.poll()
    assert bench.body(SERVE) == NO_APPLICATIONS


def test_serve_that_is_not_installed_is_no_failure(bench: Bench) -> None:
    bench.ray.answers[SERVE] = 501, b"Serve dependencies are not installed."
    assert bench.poll().failed == 0
    assert bench.body(SERVE) is None


# Ray Data ------------------------------------------------------------------------------------------------------------

DATASET = {"datasets": [{"dataset": "d", "state": "RUNNING"}]}


def only_jobs(ray: DashboardStandIn, jobs: dict[str, str]) -> None:
    ray.answers[JOBS] = [job(name, status) for name, status in jobs.items()]


def test_datasets_are_polled_for_each_job_with_a_started_driver(bench: Bench) -> None:
    only_jobs(bench.ray, {"01000000": "RUNNING", "02000000": "SUCCEEDED"})
    bench.ray.answers[JOBS] += [job(None, "PENDING"), job("", "PENDING"), job("../../etc", "RUNNING")]
    bench.ray.answers[datasets("01000000")] = bench.ray.answers[datasets("02000000")] = DATASET
    bench.poll()
    assert bench.body(datasets("01000000")) == bench.body(datasets("02000000")) == DATASET
    assert sum("datasets" in url for url in bench.ray.requests) == 2


def test_without_ray_data_no_request_creates_its_actor(bench: Bench) -> None:
    bench.ray.actors.clear()
    bench.poll(6)
    bench.final()
    assert not any("datasets" in url or "train" in url for url in bench.ray.requests)


def test_the_actor_is_looked_for_when_jobs_change_and_every_few_polls(bench: Bench) -> None:
    bench.ray.actors.clear()
    only_jobs(bench.ray, {"01000000": "RUNNING"})
    bench.poll(9)
    assert sum("_StatsActor" in url for url in bench.ray.requests) == 3
    only_jobs(bench.ray, {"01000000": "SUCCEEDED"})
    bench.poll(9)
    assert sum("_StatsActor" in url for url in bench.ray.requests) == 4


def test_a_running_job_is_polled_less_often_while_nothing_changes(bench: Bench) -> None:
    only_jobs(bench.ray, {"01000000": "RUNNING"})
    when = []
    for number in range(1, 81):
        before = bench.ray.asked(datasets("01000000"))
        if number == 30:
            bench.ray.answers[datasets("01000000")] = DATASET
        bench.poll()
        if bench.ray.asked(datasets("01000000")) > before:
            when.append(number)
    assert when == [1, 5, 13, 29, 61, 65, 73]  # seen as changed in 61, so soon again


def test_empties_of_a_running_job_do_not_count(bench: Bench) -> None:
    only_jobs(bench.ray, {"01000000": "RUNNING"})
    bench.poll(20)
    bench.ray.answers[JOBS] = [job("01000000", "SUCCEEDED")]
    bench.ray.answers[datasets("01000000")] = DATASET
    bench.poll()
    assert bench.body(datasets("01000000")) == DATASET


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "STOPPED"])
def test_an_ended_job_is_polled_once_more(bench: Bench, status: str) -> None:
    only_jobs(bench.ray, {"01000000": "RUNNING"})
    bench.ray.answers[datasets("01000000")] = DATASET
    bench.poll(2)
    ended = {"datasets": [{"dataset": "d", "state": "FINISHED"}]}
    bench.ray.answers[JOBS], bench.ray.answers[datasets("01000000")] = [job("01000000", status)], ended
    bench.poll(10)
    bench.final()
    assert bench.ray.asked(datasets("01000000")) == 2
    assert bench.body(datasets("01000000")) == ended


def test_an_ended_job_is_polled_again_after_a_failure(bench: Bench) -> None:
    only_jobs(bench.ray, {"01000000": "SUCCEEDED"})
    bench.ray.answers[datasets("01000000")] = 503, b"No module named 'pandas'"
    bench.poll(3)
    bench.ray.answers[datasets("01000000")] = DATASET
    bench.poll(3)
    assert bench.ray.asked(datasets("01000000")) == 4
    assert bench.body(datasets("01000000")) == DATASET


def test_an_ended_job_is_given_up_after_two_empty_answers_until_the_final_poll(bench: Bench) -> None:
    only_jobs(bench.ray, {"01000000": "SUCCEEDED"})
    bench.poll(5)
    assert bench.ray.asked(datasets("01000000")) == 2
    bench.ray.answers[datasets("01000000")] = DATASET
    bench.final()
    assert bench.body(datasets("01000000")) == DATASET


def test_late_statistics_of_an_ended_job_are_stored(bench: Bench) -> None:
    only_jobs(bench.ray, {"01000000": "SUCCEEDED"})
    bench.poll()
    bench.ray.answers[datasets("01000000")] = DATASET
    bench.poll()
    assert bench.body(datasets("01000000")) == DATASET


def test_an_empty_answer_never_replaces_datasets(bench: Bench) -> None:
    only_jobs(bench.ray, {"01000000": "RUNNING"})
    bench.ray.answers[datasets("01000000")] = DATASET
    bench.poll()
    bench.ray.answers[datasets("01000000")] = {"datasets": []}
    bench.poll(20)
    only_jobs(bench.ray, {"01000000": "SUCCEEDED"})
    bench.poll(3)
    bench.final()
    assert bench.body(datasets("01000000")) == DATASET


def test_many_ended_jobs_are_polled_in_portions(bench: Bench) -> None:
    names = [f"{number:08x}" for number in range(1, 51)]
    bench.ray.answers[JOBS] = [job(name, "SUCCEEDED") for name in names]
    bench.ray.answers |= {datasets(name): DATASET for name in names}
    asked = [bench.poll() and sum("datasets" in url for url in bench.ray.requests) for _ in range(4)]
    assert asked == [20, 40, 50, 50]


# Ray Train -----------------------------------------------------------------------------------------------------------


def test_train_is_polled_rarely_while_jobs_run_and_after_one_ended(bench: Bench) -> None:
    only_jobs(bench.ray, {"01000000": "RUNNING"})
    bench.poll(60)
    assert bench.ray.asked(TRAIN) == 4  # in polls 1, 9, 25 and 57
    bench.ray.answers[JOBS] = [job("01000000", "SUCCEEDED")]
    bench.poll(60)
    assert bench.ray.asked(TRAIN) == bench.ray.asked(OLD_TRAIN) == 5


def test_changing_train_runs_are_polled_at_an_even_pace(bench: Bench) -> None:
    only_jobs(bench.ray, {"01000000": "RUNNING"})
    for number in range(33):
        bench.ray.answers[TRAIN] = {"train_runs": [{"id": "r", "step": number}]}
        bench.poll()
    assert bench.ray.asked(TRAIN) == 5
    assert bench.body(TRAIN) == {"train_runs": [{"id": "r", "step": 32}]}


def test_a_train_without_state_is_no_failure_and_empties_nothing(bench: Bench) -> None:
    bench.poll()
    full = bench.body(TRAIN)
    bench.ray.answers[TRAIN] = {"train_runs": []}
    bench.ray.answers[JOBS] = [job("01000000", "SUCCEEDED")]
    report = bench.poll()
    assert (report.failed, bench.body(TRAIN), bench.body(OLD_TRAIN)) == (0, full, None)


def test_train_is_polled_again_after_a_failure_at_the_end_of_a_job(bench: Bench) -> None:
    only_jobs(bench.ray, {"01000000": "SUCCEEDED"})
    answer, bench.ray.answers[TRAIN] = bench.ray.answers[TRAIN], (503, b"the GCS may be down")
    bench.poll(2)
    bench.ray.answers[TRAIN] = answer
    bench.poll(3)
    assert bench.ray.asked(TRAIN) == 3
    assert bench.body(TRAIN) == json.loads(answer)


# Nodes ---------------------------------------------------------------------------------------------------------------


def with_nodes(ray: DashboardStandIn, count: int) -> list[str]:
    names = [f"{number:056x}" for number in range(count)]
    ray.answers[NODES] = rows(*({"node_id": name, "state": "ALIVE"} for name in names))
    ray.answers |= {f"/nodes/{name}": {"result": True, "data": {"detail": {"now": 1.5}}} for name in names}
    return names


def test_the_nodes_of_a_large_cluster_take_turns_and_new_ones_come_first(bench: Bench) -> None:
    names = with_nodes(bench.ray, 130)
    bench.poll(2)
    assert [bench.ray.asked(f"/nodes/{name}") for name in names] == [1] * 100 + [0] * 30
    (new,) = set(with_nodes(bench.ray, 131)) - set(names)
    bench.poll()
    assert bench.ray.asked(f"/nodes/{new}") == 1
    bench.poll()
    assert sum("/nodes/" in url for url in bench.ray.requests) == 131
    bench.poll()
    assert [bench.ray.asked(f"/nodes/{name}") for name in names[:51]] == [2] * 50 + [1]


def test_dead_nodes_are_not_polled_and_their_last_answer_stays(bench: Bench) -> None:
    bench.poll()
    dead, alive = bench.ray.nodes
    bench.ray.answers[NODES] = rows({"node_id": dead, "state": "DEAD"}, {"node_id": alive, "state": "ALIVE"})
    bench.poll(5)
    assert (bench.ray.asked(f"/nodes/{dead}"), bench.ray.asked(f"/nodes/{alive}")) == (1, 2)
    assert bench.body(f"/nodes/{dead}") is not None


def test_a_node_without_data_is_not_stored(bench: Bench) -> None:
    # So answers Ray 2.60 for any name.
    unknown = {"raylet": {"objectStoreUsedMemory": 0}, "tpus": [], "actors": {}, "workers": []}
    bench.ray.answers[f"/nodes/{bench.ray.nodes[0]}"] = {"result": True, "data": {"detail": unknown}}
    bench.poll()
    assert bench.body(f"/nodes/{bench.ray.nodes[0]}") is None


# The end of a cluster ------------------------------------------------------------------------------------------------


def test_the_final_poll_never_makes_a_full_answer_empty(bench: Bench) -> None:
    bench.poll()
    before = bench.stored()
    empty: dict[str, Any] = {
        SERVE: NO_APPLICATIONS,
        PLACEMENT_GROUPS: rows(),
        JOBS: [],
        TRAIN: {"train_runs": []},
        SUMMARY: {"result": True, "data": {"summary": []}},
        NODES: rows(),
        "/events": {"result": True, "data": {"events": {}}},
    }
    bench.ray.answers |= empty
    bench.poll(2)  # the controller died first, the container follows
    assert bench.final().stored == 0
    assert bench.stored() == before


def test_a_partial_answer_does_not_replace_a_whole_one_in_the_final_poll(bench: Bench) -> None:
    bench.poll()
    before = bench.body(RUNTIME_ENVS)
    bench.ray.answers[RUNTIME_ENVS] = rows({"runtime_env": {}}, partial_failure_warning="1 of 2 agents did not answer")
    bench.final()
    assert bench.body(RUNTIME_ENVS) == before


def test_the_final_poll_ignores_the_pace(bench: Bench) -> None:
    only_jobs(bench.ray, {"01000000": "RUNNING", "02000000": "SUCCEEDED"})
    bench.ray.answers[datasets("01000000")] = bench.ray.answers[datasets("02000000")] = DATASET
    bench.poll(2)
    bench.ray.forget()
    last = {"datasets": [{"dataset": "d", "state": "FINISHED"}]}
    bench.ray.answers[datasets("01000000")] = last
    bench.final()
    assert bench.body(datasets("01000000")) == last
    assert bench.ray.asked(datasets("02000000")) == 0  # kept since it ended
    assert bench.ray.asked(TRAIN) == 1
    assert {bench.ray.asked(f"/nodes/{node}") for node in bench.ray.nodes} == {1}
    assert bench.ray.asked("/api/version") == 0


def test_the_final_poll_requests_the_most_important_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling.cycle, "CONCURRENCY", 1)
    bench.final()
    plain = [url.partition("?")[0] for url in bench.ray.requests]
    assert plain[:6] == [
        *("/api/version", "/api/v0/cluster_metadata", "/timezone", "/api/jobs/", "/api/v0/actors", "/api/v0/actors")
    ]
    assert plain[6:8] == ["/api/v0/placement_groups", "/api/serve/applications/"]
    assert plain[-2:] == [f"/nodes/{node}" for node in bench.ray.nodes]


def test_one_slow_answer_does_not_keep_the_final_poll_from_the_others(bench: Bench) -> None:
    bench.ray.delays[SERVE] = 30
    started = time.monotonic()
    report = bench.poller.final_poll(SESSION, deadline=soon(3))
    assert time.monotonic() - started < 20
    assert report.failed == 1
    assert captured().polled.keys() - bench.stored().keys() == {
        *("restful__api__v0__workers", "restful__api__v0__runtime_envs", endpoint_name(SERVE))
    }


def test_an_answer_after_the_deadline_is_not_stored(bench: Bench) -> None:
    bench.ray.delays[JOBS] = 60
    report = bench.poller.poll(SESSION, deadline=soon(2))
    assert report.failures == {polling.TIME: "the deadline passed before all answers arrived"}
    assert report.failed == 1
    bench.ray.over.set()  # it comes, too late
    time.sleep(0.4)
    assert bench.body(JOBS) is None
    assert bench.poll().failed == 0
    assert bench.body(JOBS) is not None


def test_a_deadline_in_the_past_asks_and_keeps_nothing(bench: Bench) -> None:
    report = bench.poller.poll(SESSION, deadline=time.monotonic())
    due = (polling.When.ONCE, polling.When.EVERY_POLL, polling.When.WITH_ACTORS)
    assert report.failed == len([e for e in ENDPOINTS if e.when in due])
    assert (bench.stored(), bench.ray.requests) == ({}, [])


def test_a_request_is_bounded_even_when_the_cycle_is_long(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling.cycle, "REQUEST_SECONDS", 1.0)
    bench.ray.delays[SERVE] = 30
    started = time.monotonic()
    assert bench.poll().failed == 1
    assert time.monotonic() - started < 20


def test_stopping_ends_a_running_poll_and_keeps_nothing_of_it(bench: Bench) -> None:
    bench.ray.delays = dict.fromkeys(bench.ray.answers, 60.0)
    reports: list[PollReport] = []
    running = threading.Thread(target=lambda: reports.append(bench.poller.poll(SESSION, deadline=soon(20))))
    running.start()
    while not bench.ray.requests:
        time.sleep(0.01)
    bench.poller.stop()
    running.join(20)
    assert not running.is_alive()
    bench.ray.over.set()  # the answers come, too late
    time.sleep(0.5)
    assert bench.stored() == {}
    assert reports[0].stored == 0
    bench.ray.delays.clear()
    assert bench.poll().stored == 0
    assert bench.final().stored > 10


def test_the_final_poll_does_not_wait_for_a_running_one(bench: Bench) -> None:
    bench.ray.delays[SERVE] = 60
    running = threading.Thread(target=lambda: bench.poller.poll(SESSION, deadline=soon(60)))
    running.start()
    while not bench.ray.asked(SERVE):
        time.sleep(0.01)
    bench.ray.delays.clear()
    started = time.monotonic()
    assert bench.final().failed == 0
    running.join(20)
    assert not running.is_alive()
    assert time.monotonic() - started < 20


# Sessions ------------------------------------------------------------------------------------------------------------


def test_a_new_session_starts_with_nothing_remembered(bench: Bench) -> None:
    bench.poll()
    first = bench.stored()
    bench.poll(session="session_2026-11-16_08-00-00_000001_1")
    assert bench.stored("session_2026-11-16_08-00-00_000001_1") == first
    assert bench.ray.asked("/api/version") == bench.ray.asked(datasets("07000000")) == 2


def test_the_final_poll_uses_the_memory_of_its_own_session_only(bench: Bench) -> None:
    bench.poll()
    bench.final(session="session_2026-11-16_08-00-00_000001_1")
    assert bench.stored("session_2026-11-16_08-00-00_000001_1") == bench.stored()


# Trouble -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_reported_once_and_tried_in_every_poll(
    ray: DashboardStandIn, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    ray.token, ray.refuses_with = "secret", status
    bench = Bench(ray, token="wrong")
    report = bench.poll()
    assert list(report.failures) == [polling.EVERYTHING]
    bench.poll(2)
    assert len(caplog.records) == 1
    assert str(status) in caplog.text
    assert "wrong" not in caplog.text
    bench.token = "secret"
    assert bench.poll().stored > 10
    bench.token = None
    bench.poll()
    assert len(caplog.records) == 2


def test_a_dashboard_that_is_not_up_yet_is_not_worth_a_word(
    ray: DashboardStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(ray)
    bench.poller = Poller(bench.destination, Dashboard("http://127.0.0.1:9", lambda: None))
    report = bench.poll()
    assert (report.stored, report.failures, caplog.records) == (0, {}, [])
    assert report.failed > 10


class Down:
    """A stand-in for a store that cannot be reached, in front of one that can."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.down = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def put(self, key: str, data: bytes) -> None:
        if self.down:
            raise Unreachable(f"cannot write {key}")
        self.store.put(key, data)


def test_an_answer_that_could_not_be_stored_is_stored_by_the_next_poll(
    ray: DashboardStandIn, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(ray)
    store: Any = Down(bench.store)
    bench.poller = Poller(Destination(store, Cluster("default", "demo")), Dashboard(ray.url, lambda: None))
    report = bench.poll()
    assert list(report.failures) == [polling.ARCHIVE]
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    store.down = False
    assert bench.poll().failed == 0
    assert bench.body(datasets("07000000")) is not None  # of an ended job, which is asked only until it was stored


# A real Ray ----------------------------------------------------------------------------------------------------------

NOBODY = 9
"""A port on which nothing listens: the events stay with the agent."""
DRIVER = """
import ray
from ray.util.placement_group import placement_group
ray.init()
group = placement_group([{"CPU": 0.1}], name="kept", lifetime="detached")
ray.get(group.ready())
@ray.remote(num_cpus=0.1, runtime_env={"env_vars": {"SECRET": "plain"}})
class Holder:
    def ping(self):
        return 1
holder = Holder.options(name="holder", lifetime="detached", namespace="n").remote()
assert ray.get(holder.ping.remote()) == 1
"""


@pytest.fixture(scope="module")
def cluster(real_ray: str) -> Iterator[RayCluster]:
    found = RayCluster()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}")  # the job's `python`
            found.start_head(events_port=NOBODY)
            found.submit(DRIVER, NOBODY, submission_id="keeps-a-group")
        yield found
    finally:
        found.remove()


@pytest.mark.xdist_group("ray")
def test_the_answers_of_a_real_ray_are_stored_unchanged(cluster: RayCluster, ray: DashboardStandIn) -> None:
    bench = Bench(ray)
    bench.poller = Poller(bench.destination, Dashboard(cluster.dashboard, lambda: None))
    tasks_before = len(cluster.list("tasks"))
    (node,) = [row["node_id"] for row in cluster.list("nodes")]
    deadline = soon(30)
    report = bench.poll()
    while bench.body(f"/nodes/{node}") is None and time.monotonic() < deadline:  # until the first statistics came
        report = bench.poll()
    assert (report.failed, report.failures) == (0, {})

    for url in (PLACEMENT_GROUPS, NODES, JOBS, "/api/version", "/timezone", "/api/v0/cluster_metadata"):
        assert bench.body(url) == cluster.get(url), url
    (group,) = bench.body(PLACEMENT_GROUPS)["data"]["result"]["result"]
    assert (group["name"], group["state"]) == ("kept", "CREATED")
    (submitted,) = bench.body(JOBS)
    assert (submitted["submission_id"], submitted["status"]) == ("keeps-a-group", "SUCCEEDED")
    live = cluster.get(f"/nodes/{node}?nocache=1")["data"]["detail"]
    kept = bench.body(f"/nodes/{node}")["data"]["detail"]
    assert (kept["raylet"]["nodeId"], kept["hostname"], kept.keys()) == (node, live["hostname"], live.keys())
    assert "Resources" in bench.body("/api/cluster_status?format=1")["data"]["clusterStatus"]
    assert bench.body("/api/version")["session_name"] == cluster.session.name
    assert {"keeps-a-group"} <= {str(row) for row in _values(bench.body("/events"))}
    actors = {row["actor_id"] for row in bench.body(ACTORS)["data"]["result"]["result"]}
    assert actors == set(bench.body(LOGICAL_ACTORS)["data"]["actors"]) != set()
    assert bench.body(UNFINISHED_TASKS.url)["data"]["result"]["result"] == [], "Ray understands all four conditions"
    assert '"plain"' in json.dumps(bench.body(RUNTIME_ENVS))  # redacted when served, not here

    assert not any("datasets" in name or "train" in name for name in bench.stored())
    assert len(cluster.list("tasks")) == tasks_before


@pytest.mark.xdist_group("ray")
@needs_ray("2.50", "a counter of failures in a row")
def test_the_agent_of_a_real_ray_counts_received_and_unsent_events(cluster: RayCluster) -> None:
    node = RayNode(cluster.root, head=True)
    session = node.current()
    assert session is not None
    port = node.metrics_port(session, node.node_id(session) or "")
    assert port is not None
    found = scrape(port, timeout=5)
    assert found is not None
    assert found.received is not None
    assert found.received > 10
    assert (found.published, found.dropped, found.lost) == (None, None, 0)
    assert found.failing_in_a_row is not None
    assert found.failing_in_a_row > 0


@pytest.mark.xdist_group("ray")
def test_the_answers_of_a_real_ray_that_died_remain(cluster: RayCluster, ray: DashboardStandIn) -> None:
    bench = Bench(ray)
    bench.poller = Poller(bench.destination, Dashboard(cluster.dashboard, lambda: None))
    bench.poll()
    before = bench.stored()
    cluster.kill("gcs_server")
    report = bench.final()
    assert report.failed > 0
    groups = endpoint_name(PLACEMENT_GROUPS)
    assert (bench.stored()[groups], bench.stored().keys()) == (before[groups], before.keys())


def _values(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _values(inner)
    else:
        yield value
