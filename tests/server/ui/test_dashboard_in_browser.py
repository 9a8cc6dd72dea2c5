"""A walk through the real Ray Dashboard of a dead session: every page works, and what it shows is what the API says.

One tab goes from page to page, as a person would; each page is visited once. After each, nothing may have gone wrong:
no request failed or was refused, nothing stands in the console, and the bar is there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.history.rebuilt import NODE, OTHER_NODE, node, node_life
from tests.server.serving import Served, served
from tests.support.captured import captured, write_archive
from tests.support.chromium import Chromium, Page
from tests.support.waiting import until

from .written_sessions import SESSION, end_long_ago, ran, write_session

pytestmark = pytest.mark.xdist_group("browser")

TEXT = "(document.querySelector('#root')?.innerText ?? '').replace(/\\s+/g, ' ')"
ROWS = "[...document.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.innerText.trim()))"
JOB, DATA_JOB = "04000000", "07000000"
RAISER = "751f3bef5a99009effffffffffffffffffffffff04000000"
RESTARTER = "5650c71c8586a608d349c70904000000"
SIDE_NODE = "e1b0ecf032fb73ce8aaf62b706baec4939d7c4222fc1abf012d26a71"


@dataclass
class Walk:
    """A tab in the dashboard of a session."""

    page: Page
    server: Served
    session: str

    def ask(self, path: str) -> Any:
        """An answer of the API."""
        answer = self.server.get(f"{self.session}/{path}")
        assert answer.status == 200, answer.body
        return answer.json

    def rows(self, path: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.ask(path)["data"]["result"]["result"]
        return rows

    def log(self, query: str) -> str:
        """A log that is not empty."""
        answer = self.server.get(f"{self.session}/api/v0/logs/file?{query}")
        assert answer.status == 200
        assert answer.body
        return answer.body.decode()

    def to(self, place: str, *texts: str) -> None:
        """Open a page and wait for all of these texts."""
        self.page.value(f"location.hash = {json.dumps('#' + place)}")
        self.until(*texts)

    def until(self, *texts: str) -> None:
        for text in texts:
            shown = " ".join(text.split())
            try:
                self.page.wait(f"{TEXT}.includes({json.dumps(shown)})")
            except AssertionError:
                raise AssertionError(f"{shown!r} is not in {self.page.value(TEXT)!r}") from None

    def click(self, selector: str, text: str) -> None:
        """The element with exactly this text, once it exists."""
        found = (
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            f".find(one => one.textContent.trim() === {json.dumps(text)})"
        )
        self.page.wait(found)
        self.page.value(f"{found}.click()")

    def until_rows(self, number: int) -> list[list[str]]:
        """The rows of the only table, once it has this many."""
        self.page.wait(f"{ROWS}.length === {number}")
        rows: list[list[str]] = self.page.value(ROWS)
        return rows


EMPTY_CARDS = """[...document.querySelectorAll('.MuiPaper-root:has(input[name=refresh])')]
    .filter(card => card.checkVisibility() && card.innerText.trim().split("\\n").length < 2)
    .map(card => card.outerHTML)"""
"""Cards that show nothing but their title."""


def by_state(rows: list[dict[str, Any]]) -> list[str]:
    """As the dashboard counts them."""
    counts = Counter(row["state"] for row in rows)
    return [f"TOTAL x {len(rows)}", *(f"{state} x {number}" for state, number in counts.items())]


def of_job(path: str, job: str = JOB) -> str:
    return f"api/v0/{path}&filter_keys=job_id&filter_predicates=%3D&filter_values={job}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, chromium: Chromium) -> Iterator[Walk]:
    folder = tmp_path_factory.mktemp("walk")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    end_long_ago(folder)
    session = f"/s/default/demo/{captured().session}"
    with served(store, folder / "cache") as server, chromium.page() as page:
        assert server.get(f"{session}/api/version").status == 200
        page.open(f"{server.url}{session}/")
        yield Walk(page, server, session)


@pytest.fixture
def walk(whole: Walk) -> Iterator[Walk]:
    """The walk; the visited page must have no errors."""
    yield whole
    bar = "document.querySelector('.hbar')"
    assert whole.page.value(f"{bar}.checkVisibility() && {bar}.getBoundingClientRect().top") == 0
    assert "demo" in whole.page.value(f"{bar}.innerText")
    wrong, whole.page.complaints = whole.page.complaints, []
    assert wrong == []


def test_overview(walk: Walk) -> None:
    jobs = sorted(walk.ask("api/jobs/"), key=lambda job: -job["start_time"])
    applications = walk.ask("api/serve/applications/")["applications"]
    events = [event for some in walk.ask("events")["data"]["events"].values() for event in some]
    walk.to("/overview", *(f"{job['submission_id']} ({job['job_id']}) {job['entrypoint']}" for job in jobs[:6]))
    for name, application in applications.items():
        walk.until(*(f"{deployment} {name}" for deployment in application["deployments"]))
    walk.until(
        "Active: (no active nodes: the cluster was terminated)",
        "Total Usage in the last report:",
        "{'CPU': 100.0}: 1+ pending tasks/actors",
    )
    walk.until(max(events, key=lambda event: int(event["timestamp"]))["message"])
    pages = (
        "[...document.querySelectorAll('.MuiPagination-root')].map(one => one.innerText.trim().split(/\\s+/).at(-1))"
    )
    assert set(walk.page.value(pages)) == {str(-(-len(events) // 10))}
    assert walk.page.value("document.querySelectorAll('iframe').length") == 0, "no charts, and no cards for them"


def test_jobs(walk: Walk) -> None:
    jobs = {job["submission_id"]: job for job in walk.ask("api/jobs/")}
    walk.to("/jobs", *jobs)
    rows = {row[2]: row for row in walk.until_rows(len(jobs))}
    assert rows.keys() == jobs.keys()
    for name, job in jobs.items():
        assert rows[name][0] == job["job_id"]
        assert rows[name][3:5] == [job["entrypoint"], job["status"]]
        assert rows[name][-1] == job["driver_info"]["pid"]
    assert walk.page.value(EMPTY_CARDS) == []


def test_a_job_with_its_progress_its_lineage_and_its_log(walk: Walk) -> None:
    tasks = walk.rows(of_job("tasks?detail=1&limit=10000"))
    states = Counter(task["state"] for task in tasks)
    walk.to(f"/jobs/{JOB}", f"Total: {len(tasks)} Finished: {states['FINISHED']} Failed: {states['FAILED']}")
    walk.until("Status SUCCEEDED", *walk.ask("api/jobs/fx-core/logs")["logs"].splitlines()[:4])
    summary = walk.ask(of_job("tasks/summarize?summary_by=lineage"))["data"]["result"]["result"]
    lineage = summary["node_id_to_summary"]["cluster"]["summary"]
    walk.page.click("[data-testid=progress-bar-segment]")
    shown = Counter((row[0].partition("(")[0].strip(), row[1]) for row in walk.until_rows(len(lineage)))
    expected = [(group["name"].partition("(")[0], Counter(group["state_counts"])) for group in lineage]
    assert shown == Counter((name, f"{states['FINISHED']} / {states.total()}") for name, states in expected)
    parent = next(number for number, group in enumerate(lineage) if group["type"] != "GROUP" and group["children"])
    walk.page.value(f"document.querySelectorAll('tbody tr')[{parent}].cells[0].click()")
    walk.until_rows(len(lineage) + len(lineage[parent]["children"]))
    walk.page.click("[data-testid=progress-bar-segment]")


def test_the_tables_of_a_job(walk: Walk) -> None:
    tasks = walk.rows(of_job("tasks?detail=1&limit=10000"))
    walk.to(f"/jobs/{JOB}")
    walk.click("h4", "Task Table")
    walk.until(*by_state(tasks))
    shown = [(row[0], row[1], row[3]) for row in walk.until_rows(10)]
    assert shown == [(task["task_id"], task["name"], task["state"]) for task in tasks[:10]]
    walk.click("h4", "Task Table")
    actors = [actor for actor in walk.ask("logical/actors")["data"]["actors"].values() if actor["jobId"] == JOB]
    walk.click("h4", "Actor Table")
    walk.until(*by_state(actors))
    assert {row[1] for row in walk.until_rows(len(actors))} == {actor["actorId"] for actor in actors}
    walk.click("h4", "Actor Table")
    groups = walk.rows("api/v0/placement_groups?detail=1")
    groups = [group for group in groups if group["creator_job_id"] == JOB]
    walk.click("h4", "Placement Group Table")
    walk.until(*by_state(groups))
    shown_groups = {(row[0], row[1], row[3]) for row in walk.until_rows(len(groups))}
    assert shown_groups == {(group["placement_group_id"], group["name"], group["state"]) for group in groups}


def test_the_timeline_of_a_job_is_downloaded(walk: Walk, tmp_path: Path) -> None:
    walk.to(f"/jobs/{JOB}", "Task Timeline")
    walk.page.command("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    walk.click("a", "Download trace file")
    found = until(lambda: list(tmp_path.glob("*.json")))
    assert json.loads(found[0].read_bytes()) == walk.ask(f"api/v0/tasks/timeline?job_id={JOB}")


def test_a_job_that_used_ray_data(walk: Walk) -> None:
    (dataset, *_) = walk.ask(f"api/data/datasets/{DATA_JOB}")["datasets"]
    walk.to(f"/jobs/{DATA_JOB}", "Ray Data Overview")
    walk.click("h4", "Ray Data Overview")
    walk.until(dataset["dataset"], dataset["state"])


def test_serve(walk: Walk) -> None:
    (name, application), *_ = walk.ask("api/serve/applications/")["applications"].items()
    walk.to("/serve", f"Application status {application['status']} x 1", f"{name} {application['status']}")
    deployments = application["deployments"]
    walk.until(*(f"{each['name']} {each['status']}" for each in deployments.values()), "Controller starting")
    walk.to(f"/serve/applications/{name}", f"Deployments {len(deployments)}", application["route_prefix"])
    (deployment, details), *_ = deployments.items()
    (replica, *_) = details["replicas"]
    walk.to(f"/serve/applications/{name}/{deployment}", f"{replica['replica_id']} {replica['state']}")
    walk.until("Finished initializing replica")
    walk.to("/serve/system", "Serve Controller", walk.ask("api/serve/applications/")["controller_info"]["actor_id"])


def test_cluster(walk: Walk) -> None:
    nodes = walk.ask("nodes?view=summary")["data"]["summary"]
    walk.to("/cluster", *by_state([node["raylet"] for node in nodes]))
    shown = [(row[1], row[2], row[4], row[7]) for row in walk.until_rows(len(nodes))]
    expected = [
        (node["hostname"], node["raylet"]["state"], node["raylet"]["nodeId"], f"{node['cpu']}%") for node in nodes
    ]
    assert shown == expected
    assert walk.page.value(EMPTY_CARDS) == []
    walk.page.value(
        "[...document.querySelectorAll('tbody tr svg')].slice(0, 2).forEach(one => one.parentElement.click())"
    )
    workers = [walk.ask(f"nodes/{node['raylet']['nodeId']}")["data"]["detail"]["workers"] for node in nodes]
    walk.until_rows(len(nodes) + sum(map(len, workers)))
    versions = walk.ask("api/v0/cluster_metadata")["data"]
    walk.to("/cluster/info", f"Ray Version {versions['rayVersion']}", f"Python Version {versions['pythonVersion']}")


def test_a_node(walk: Walk) -> None:
    detail = walk.ask(f"nodes/{SIDE_NODE}")["data"]["detail"]
    walk.to(f"/cluster/nodes/{SIDE_NODE}", f"Hostname {detail['hostname']}", f"IP {detail['ip']}")
    assert walk.page.value(EMPTY_CARDS) == []
    walk.until(f"NODE - {SIDE_NODE} DEAD")
    walk.click("[role=tab]", f"Worker ({len(detail['workers'])})")
    pids = {str(worker["pid"]) for worker in detail["workers"]}
    assert {row[1] for row in walk.until_rows(len(pids))} == pids
    walk.click("[role=tab]", f"Actor ({len(detail['actors'])})")
    walk.until(*by_state(list(detail["actors"].values())))


def test_actors(walk: Walk) -> None:
    actors = walk.ask("logical/actors")["data"]["actors"]
    walk.to("/actors", *by_state(list(actors.values())))
    for row in walk.until_rows(10):
        actor = actors[row[1]]
        assert row[3:5] == [actor["className"], actor["name"] or "-"]
        assert row[6] == actor["state"]


def test_an_actor_with_its_logs_and_tasks(walk: Walk) -> None:
    actor = walk.ask(f"logical/actors/{RESTARTER}")["data"]["detail"]
    walk.to(f"/actors/{RESTARTER}", "State DEAD", f"Restarted {actor['numRestarts']}", actor["exitDetail"])
    walk.click("[role=tab]", "stdout")
    walk.until(*walk.log(f"actor_id={RESTARTER}&suffix=out").splitlines())
    walk.click("h4", "Tasks History")
    tasks = [task for task in walk.rows("api/v0/tasks?detail=1&limit=10000") if task["actor_id"] == RESTARTER]
    walk.until(*by_state(tasks))


def test_a_task_with_its_error_its_call_stack_and_its_logs(walk: Walk) -> None:
    (task,) = (task for task in walk.rows("api/v0/tasks?detail=1&limit=10000") if task["task_id"] == RAISER)
    walk.to(f"/jobs/{JOB}/tasks/{RAISER}", f"Name {task['name']} State {task['state']}", task["worker_id"])
    walk.click("[role=tab]", "Error stack trace")
    walk.until(f"Error Type: {task['error_type']}", task["error_message"].splitlines()[-1])
    walk.click("[role=tab]", "stdout")
    walk.until(*walk.log(f"task_id={RAISER}&suffix=out").splitlines())
    walk.click("button", "View")
    walk.page.wait("document.querySelector('[role=dialog]')?.innerText.includes('core.py')")
    assert task["call_site"].strip() in walk.page.value("document.querySelector('[role=dialog]').innerText")
    walk.page.press("Escape")
    walk.page.wait("!document.querySelector('[role=dialog]')")


def test_logs_from_the_nodes_to_the_text_of_a_file(walk: Walk) -> None:
    nodes = walk.ask("nodes?view=summary")["data"]["summary"]
    walk.to(
        "/logs", *(f"Node ID: {node['raylet']['nodeId']} (IP: {node['ip']}" for node in nodes), "(IP: 192.0.2.2, head)"
    )
    walk.page.click(f"a[href*='{SIDE_NODE}']")
    logs = walk.ask(f"api/v0/logs?node_id={SIDE_NODE}")["data"]["result"]
    walk.until("raylet.out")
    files = "[...document.querySelectorAll('li > a:first-child')].map(a => a.innerText)"
    assert walk.page.value(files) == sorted(name for some in logs.values() for name in some)
    walk.click("li > a", "serve/")
    walk.until("replica_")
    below = walk.ask(f"api/v0/logs?node_id={SIDE_NODE}&glob=serve/*")["data"]["result"]
    assert walk.page.value(f"{files}.length") == sum(map(len, below.values()))
    walk.to(f"/logs/viewer?nodeId={SIDE_NODE}&fileName=raylet.out")
    walk.until(*walk.log(f"node_id={SIDE_NODE}&filename=raylet.out&lines=-1").splitlines()[:5])


def test_metrics_and_platform_events_say_that_there_are_none(walk: Walk) -> None:
    walk.to("/metrics")
    walk.page.wait("document.querySelector('[data-metrics]').checkVisibility()")
    assert "No metrics of this session" in walk.page.value("document.querySelector('[data-metrics]').innerText")
    assert walk.ask("api/v0/platform_events")["data"]["events"] == []
    assert walk.page.value("document.querySelector('a[href*=platform-events]').checkVisibility()") is False


def test_the_logs_of_a_node_that_died_before_the_end_can_be_found(chromium: Chromium, tmp_path: Path) -> None:
    lives = [node(), node_life("ALIVE", 0), node(OTHER_NODE, 0, nodeIpAddress="192.0.2.9"), node_life("ALIVE", 0)]
    lives += [node_life("ALIVE", 0, OTHER_NODE), node_life("DEAD", 3, OTHER_NODE)]
    logs = {(NODE, "raylet.out"): b"alive\n", (OTHER_NODE, "raylet.out"): b"these were its last words\n"}
    store = write_session(tmp_path, [*lives, *ran(1, "fine", 0, 5)], logs=logs)
    session = f"/s/default/written/{SESSION}"
    with served(store, tmp_path / "cache") as server, chromium.page() as page:
        walk = Walk(page, server, session)
        states = {node["raylet"]["nodeId"]: node["raylet"]["state"] for node in nodes_of(walk, "summary")}
        assert states == {NODE: "DEAD", OTHER_NODE: "DEAD"}, "as the end of the cluster left them"
        assert {node["ip"] for node in nodes_of(walk, "logs")} == {"192.0.2.2", "192.0.2.9, DEAD"}
        page.open(f"{server.url}{session}/#/logs")
        walk.until(f"Node ID: {OTHER_NODE} (IP: 192.0.2.9, DEAD)")
        page.click(f"a[href*='{OTHER_NODE}']")
        walk.click("li > a", "raylet.out")
        walk.until("these were its last words")
        walk.to("/cluster", "DEAD x 2")
        assert page.complaints == []


def nodes_of(walk: Walk, view: str) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = walk.ask(f"nodes?view={view}")["data"]["summary"]
    return nodes
