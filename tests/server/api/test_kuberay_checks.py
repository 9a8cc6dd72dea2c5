"""What KubeRay's end-to-end tests expect of a session that is over, restated with the captured session.

From `historyserver/test/e2e/historyserver_test.go` of ray-project/kuberay, commit feeaf72f of 2026-08-19. Where a live
Ray answers differently, so does this server: `DIFFERENT` has the reasons, and docs/fidelity.md lists them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.server.serving import Served, served
from tests.support.captured import captured, write_archive

FIDELITY = Path(__file__).parents[3] / "docs" / "fidelity.md"
FILE = "/api/v0/logs/file?node_id={node}&filename=raylet.out"
FINISHED = "filter_keys=state&filter_predicates==&filter_values=FINISHED"

STATUS = {
    # Log files
    f"{FILE}": 200,
    f"{FILE}&lines=100": 200,
    f"{FILE}&lines=-1": 200,
    f"{FILE}&timeout=5": 200,
    f"{FILE}&timeout=30": 200,
    f"{FILE}&attempt_number=0": 200,
    f"{FILE}&attempt_number=1": 404,
    f"{FILE}&download_filename=custom.log": 200,
    f"{FILE}&filter_ansi_code=true": 200,
    f"{FILE}&filter_ansi_code=false": 200,
    f"{FILE}&suffix=out": 200,
    f"{FILE}&suffix=err": 200,
    f"{FILE}&lines=50&timeout=10&filter_ansi_code=true": 200,
    f"{FILE}&lines=100&timeout=15&attempt_number=0&download_filename=custom.log&filter_ansi_code=true": 200,
    "/api/v0/logs/file?filename=raylet.out": 400,
    "/api/v0/logs/file?node_id={node}": 400,
    "/api/v0/logs/file": 400,
    f"{FILE}&lines=abc": 400,
    f"{FILE}&timeout=invalid": 400,
    f"{FILE}&attempt_number=xyz": 400,
    f"{FILE}&suffix=invalid": 400,
    "/api/v0/logs/file?node_id={node}&filename=nonexistent.log": 404,
    "/api/v0/logs/file?task_id=nonexistent-task-id": 400,
    "/api/v0/logs/file?pid=999999&node_id={node}": 404,
    "/api/v0/logs/file?pid=abc&node_id={node}": 400,
    "/api/v0/logs/file?node_ip=192.168.255.255&filename=raylet.out": 404,
    "/api/v0/logs/file?node_id={node}&filename=../etc/passwd": 400,
    "/api/v0/logs/file?node_id={node}&filename=..": 400,
    "/api/v0/logs/file?node_id={node}&filename=/etc/passwd": 400,
    "/api/v0/logs/file?node_id={node}&filename=../../secret": 400,
    "/api/v0/logs/file?node_id=../evil&filename=raylet.out": 400,
    "/api/v0/logs/stream?node_id={node}&filename=raylet.out": 501,
    # Tasks
    "/api/v0/tasks": 200,
    "/api/v0/tasks?limit=1": 200,
    "/api/v0/tasks?limit=100": 200,
    "/api/v0/tasks?limit=10000": 200,
    "/api/v0/tasks?limit=10001": 400,
    "/api/v0/tasks?limit=0": 200,
    "/api/v0/tasks?limit=abc": 400,
    "/api/v0/tasks?exclude_driver=true": 200,
    "/api/v0/tasks?exclude_driver=false": 200,
    "/api/v0/tasks?exclude_driver=invalid": 400,
    f"/api/v0/tasks?{FINISHED}": 200,
    "/api/v0/tasks?filter_keys=state&filter_predicates=!=&filter_values=PENDING_ARGS_AVAIL": 200,
    "/api/v0/tasks?filter_keys=job_id&filter_predicates==&filter_values=02000000": 200,
    f"/api/v0/tasks?{FINISHED}&filter_keys=type&filter_predicates==&filter_values=ACTOR_TASK": 200,
    "/api/v0/tasks?filter_keys=state&filter_keys=job_id&filter_predicates==&filter_values=FINISHED": 400,
    "/api/v0/tasks?filter_keys=state": 400,
    "/api/v0/tasks?limit=5&detail=true": 200,
    "/api/v0/tasks?limit=5&exclude_driver=true": 200,
    f"/api/v0/tasks?limit=10&detail=true&exclude_driver=false&{FINISHED}": 200,
    "/api/v0/tasks?detail=false": 200,
    "/api/v0/tasks?detail=1": 200,
    "/api/v0/tasks?detail=invalid": 400,
    # The rest of the dashboard
    "/api/v0/tasks/summarize": 200,
    "/api/v0/tasks/summarize?summary_by=lineage": 200,
    "/api/v0/tasks/timeline": 200,
    "/api/v0/tasks/timeline?download=1": 200,
    "/api/v0/logs?node_id={node}": 200,
    "/api/v0/logs?node_id={node}&glob=nonexistent-*.xyz": 200,
    "/api/v0/placement_groups": 200,
    "/api/v0/cluster_metadata": 200,
    "/logical/actors": 200,
    "/nodes?view=summary": 200,
    "/nodes?view=hostNameList": 200,
    "/nodes/{node}": 200,
    "/events": 200,
    "/api/cluster_status": 200,
    "/api/jobs/": 200,
    "/timezone": 200,
}
"""What KubeRay's tests expect, by path."""

DIFFERENT = {
    f"{FILE}&attempt_number=1": (200, "a file that is named by its name has no attempts"),
    "/api/v0/logs/stream?node_id={node}&filename=raylet.out": (200, "a stored log is sent to its end"),
    "/api/v0/tasks?limit=10001": (200, "listings have no limit of 10,000 rows"),
}
"""Our status and the reason, where they differ."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("checks")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    for path in (folder / "archive").rglob("*"):
        os.utime(path, (0, time.time() - 86_400))  # the session is over
    with served(store, folder / "cache") as running:
        yield running


@pytest.fixture(scope="module")
def ask(server: Served) -> Any:
    """GET as a browser does that entered the session: by cookies."""
    entered = {"Cookie": f"cluster_namespace=default; cluster_name=demo; session_name={captured().session}"}
    nodes = server.get("/nodes?view=summary", entered).json["data"]["summary"]
    head = next(node["raylet"]["nodeId"] for node in nodes if node["raylet"]["isHeadNode"])
    return lambda path: server.get(path.replace("{node}", head), entered)


@pytest.mark.parametrize("path", STATUS)
def test_the_status_is_that_of_kuberay_or_the_difference_has_a_reason(ask: Any, path: str) -> None:
    answer = ask(path)
    expected, _ = DIFFERENT.get(path, (STATUS[path], ""))
    assert answer.status == expected
    assert answer.body


def test_a_cookie_that_is_no_name_finds_no_session(server: Served) -> None:
    """KubeRay's server answers 400."""
    path = {"Cookie": f"cluster_namespace=default; cluster_name=../x; session_name={captured().session}"}
    assert server.get("/nodes?view=summary", path).status == 404


def test_every_difference_is_documented() -> None:
    page = FIDELITY.read_text()
    assert [reason for _, reason in DIFFERENT.values() if reason not in page] == []
    assert all(STATUS[path] != status for path, (status, _) in DIFFERENT.items())


@pytest.mark.parametrize(
    "glob", ["events/*RAYLET*", "*dashboard*", "events/*", "raylet*", "events/event_JOBS*", "**/*.out"]
)
def test_the_patterns_of_the_dashboard_find_files(ask: Any, glob: str) -> None:
    found = ask(f"/api/v0/logs?node_id={{node}}&glob={glob}").json["data"]["result"]
    names = [name for names in found.values() for name in names]
    if "/" in glob and not glob.startswith("**"):
        # KubeRay's server leaves the directory out of the names; a live Ray does not.
        assert all(name.startswith("events/") for name in names)
    assert names or glob.startswith("events")


def test_an_actor_is_found_by_its_id(ask: Any) -> None:
    actors = ask("/logical/actors").json["data"]["actors"]
    first = next(iter(actors))
    detail = ask(f"/logical/actors/{first}").json
    assert detail["result"] is True
    assert detail["data"]["detail"]["actorId"] == first


def test_the_history_tab_of_the_kuberay_dashboard_finds_what_it_asks_for(server: Served) -> None:
    """Its requests in their order. They come through its own server, which passes cookies on and reads JSON or text."""
    with requests.Session() as browser:

        def asked(path: str) -> requests.Response:
            answer = browser.get(server.url + path, timeout=60)
            assert answer.status_code == 200, (path, answer.text)
            return answer

        (listed,) = [row for row in asked("/clusters").json() if row["sessionName"] == captured().session]
        assert {"name", "namespace", "createTime", "createTimeStamp"} <= listed.keys()
        entered = asked(f"/enter_cluster/{listed['namespace']}/{listed['name']}/{listed['sessionName']}")
        assert (entered.history, entered.json()["result"]) == ([], "success")
        assert {cookie.path for cookie in browser.cookies} == {"/"}, "the tab has another path"
        tasks = asked("/api/v0/tasks").json()["data"]["result"]["result"]
        assert {"task_id", "name", "state", "job_id", "type", "func_or_class_name"} <= tasks[0].keys()
        nodes = asked("/nodes?view=summary").json()["data"]["summary"]
        assert all(node["hostname"] and node["ip"] for node in nodes)
        head = next(node["raylet"]["nodeId"] for node in nodes if node["raylet"]["isHeadNode"])
        files = asked(f"/api/v0/logs?node_id={head}").json()["data"]["result"]
        assert "raylet.out" in files["raylet"]
        for lines in (1000, -1):
            log = asked(f"/api/v0/logs/file?node_id={head}&filename=raylet.out&lines={lines}&filter_ansi_code=true")
            assert "(raylet)" in log.text
