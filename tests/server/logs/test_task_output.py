"""Tasks of old Rays have the output that their live dashboards showed, found in the files of their workers."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.history.living import Row
from tests.server.serving import served
from tests.support.captured import captured, write_archive

CLUSTER = Cluster("default", "old")


class Client:
    """Sends requests about one session to a running server."""

    def __init__(self, url: str, version: str) -> None:
        self.url, self.version = f"{url}/s/default/old/{captured(version).session}", version

    def tasks(self, **query: Any) -> list[Row]:
        answer = requests.get(f"{self.url}/api/v0/tasks", params={"detail": 1, "raw": 1, **query}, timeout=60)
        rows: list[Row] = answer.json()["data"]["result"]["result"]
        return rows

    def output(self, task: Row, suffix: str = "out") -> requests.Response:
        query = {"task_id": task["task_id"], "attempt_number": task["attempt_number"], "suffix": suffix, "lines": -1}
        return requests.get(f"{self.url}/api/v0/logs/file", params=query, timeout=60)


@contextmanager
def serving(folder: Path, version: str) -> Iterator[Client]:
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, CLUSTER, version=version)
    with served(store, folder / "cache") as server:
        yield Client(server.url, version)


@pytest.fixture(scope="module", params=["2.49", "2.52", "2.55"])
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(tmp_path_factory.mktemp("old"), request.param) as client:
        yield client


def live(version: str) -> list[Row]:
    rows: list[Row] = captured(version).truth["tasks"]["data"]["result"]["result"]
    return [row for row in rows if row["type"] != "DRIVER_TASK"]


def key(row: Row) -> tuple[str, int]:
    return row["task_id"], row["attempt_number"]


def test_listings_have_the_place_of_each_tasks_output(old: Client) -> None:
    shown = {key(row): row["task_log_info"] for row in old.tasks(limit=10000)}
    told = {key(row): row["task_log_info"] for row in live(old.version)}
    assert shown == told
    assert sum(info is not None for info in told.values()) == 43


def test_a_single_task_has_it_too(old: Client) -> None:
    (task,) = [row for row in live(old.version) if row["name"] == "tree"]
    query = {"filter_keys": "task_id", "filter_predicates": "=", "filter_values": task["task_id"], "limit": 1}
    assert [row["task_log_info"] for row in old.tasks(**query)] == [task["task_log_info"]]


def test_the_output_is_that_of_the_task_and_of_no_other(old: Client) -> None:
    checked = 0
    for row in live(old.version):
        for suffix in ("out", "err"):
            status, text = captured(old.version).truth["logs"][f"{row['task_id']}/{row['attempt_number']}/{suffix}"]
            answer = old.output(row, suffix)
            if status == 200:
                assert (answer.status_code, answer.text) == (200, text), row["name"]
                checked += 1
            elif answer.status_code == 200:  # Ray does not send nothing, and knows no start without RUNNING
                assert answer.text in ("", *without_running(row)), row["name"]
            elif row["task_log_info"] is None:
                assert answer.status_code in (400, 404), row["name"]
    assert checked > 40


def without_running(row: Row) -> list[str]:
    """What attempts wrote whose workers were killed before they reported the start."""
    written = {"flaky": f"try {row['attempt_number'] + 1}\n", "killed_once": "killed_once runs\n"}
    return [written[row["name"]]] if row["name"] in written else []


def test_what_killed_workers_did_not_report_is_found(old: Client) -> None:
    unreported = [row for row in live(old.version) if row["task_log_info"] is None and without_running(row)]
    assert {row["name"] for row in unreported} == {"flaky", "killed_once"}
    for row in unreported:
        assert [old.output(row).text] == without_running(row), row["attempt_number"]


def test_without_the_events_of_a_task_its_output_goes_to_no_other(tmp_path: Path) -> None:
    told = {key(row): row["task_log_info"] for row in live("2.49") if row["task_log_info"]}
    lost = {row["task_id"] for row in live("2.49") if row["name"] in ("say", "half", "color")}
    lost -= {max(lost)}  # one of a name that others had
    store = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(store, Generation.C, CLUSTER, version="2.49")
    for file in (tmp_path / "archive").rglob("*.jsonl.gz"):
        lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
        file.write_bytes(gzip.compress(b"".join(line for line in lines if task_of(line) not in lost)))
    with served(store, tmp_path / "cache") as server:
        client = Client(server.url, "2.49")
        rows = client.tasks(limit=10000)
        shown = {key(row): row["task_log_info"] for row in rows if row["task_log_info"]}
        assert shown.items() <= told.items()
        unknown = [row for row in rows if key(row) in told and key(row) not in shown]
        assert {row["name"] for row in unknown} == {"say"}
        for row in unknown:
            answer = client.output(row)
            assert answer.status_code == 404
            assert "cannot be told" in answer.json()["msg"]
            file = answer.json()["msg"].rpartition("filename=")[2].partition(" ")[0]
            whole = requests.get(f"{client.url}/api/v0/logs/file?node_id={row['node_id']}&filename={file}", timeout=60)
            assert whole.status_code == 200


def test_a_listing_does_not_need_the_logs(tmp_path: Path) -> None:
    with serving(tmp_path, "2.49") as client:
        assert client.tasks(limit=0) == []  # the session is open, and its files are listed
        for file in tmp_path.rglob("worker-*.out"):
            file.unlink()
        rows = client.tasks(limit=10000)
        assert len(rows) == len(live("2.49"))
        assert {row["task_log_info"] and "stdout_file" in row["task_log_info"] for row in rows} <= {None, False}
        (task,) = [row for row in rows if row["name"] == "tree"]
        assert client.output(task).status_code == 404


def task_of(event: bytes) -> str:
    ids = (payload.get("taskId") for payload in json.loads(event).values() if isinstance(payload, dict))
    return next((base64.b64decode(text).hex() for text in ids if text), "")
