"""Which log files are suggested, and in which order."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest

from ray_history.archive.log_files import LogFiles
from ray_history.archive.stores import ObjectInfo, Store
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.ui.session.departures import DepartedNode
from ray_history.server.ui.session.diagnosis import Diagnosis
from ray_history.server.ui.session.failures import Example, Group
from ray_history.server.ui.session.jobs import Job
from ray_history.server.ui.session.log_suggestions import MOST, Suggestion, suggest_logs

HEAD, WORKER_NODE = "a" * 56, "b" * 56
WORKER = "c" * 56
WORKER_LOG = f"worker-{WORKER}-01000000-77.err"
FILES = {
    (HEAD, "gcs_server.err"): 5,
    (HEAD, "gcs_server.out"): 100,
    (HEAD, "raylet.err"): 0,
    (HEAD, "job-driver-train.log"): 9,
    (HEAD, "job-driver-fine.log"): 9,
    (WORKER_NODE, "raylet.out"): 7,
    (WORKER_NODE, WORKER_LOG): 8,
}


def request_with(files: dict[tuple[str, str], int]) -> SessionRequest:
    """A stand-in with log files and one head node."""
    whole = [
        (node, name, ObjectInfo(f"{node}/{name}", size, datetime.fromtimestamp(0, UTC)))
        for (node, name), size in files.items()
    ]
    logs = LogFiles(cast("Store", None), whole, ())
    tables = SimpleNamespace(rows=lambda _: [(HEAD,)], source=lambda name: name)
    return cast("SessionRequest", SimpleNamespace(open=SimpleNamespace(logs=logs), tables=tables))


def group(number: int = 0) -> Group:
    example = Example(f"t{number}", 0, "f", "NORMAL_TASK", "01", None, WORKER_NODE, WORKER, "")
    return Group("ValueError", f"f{number}", 1, 1, 0, 0, 0, None, [], False, example)


def job(name: str, status: str, node: str | None = HEAD) -> Job:
    return Job("01", name, "python x.py", status, None, 0, 1, node)


FAILED_DRIVER = (HEAD, "job-driver-train.log", "driver of a failed job")
HEAD_LOGS = [(HEAD, "gcs_server.err", "errors of the control plane"), (HEAD, "gcs_server.out", "the control plane")]


@pytest.mark.parametrize(
    ("diagnosis", "jobs", "expected"),
    [
        (Diagnosis(), [job("fine", "SUCCEEDED")], []),
        (Diagnosis(), [job("fine", "SUCCEEDED"), job("train", "FAILED")], [FAILED_DRIVER, *HEAD_LOGS]),
        (
            Diagnosis(),
            [job("train", "INTERRUPTED")],
            [(HEAD, "job-driver-train.log", "driver of a job that was running at the end"), *HEAD_LOGS],
        ),
        (Diagnosis(), [job("train", "FAILED", None), job("gone", "FAILED"), job("train", "FAILED", "x")], HEAD_LOGS),
        (
            Diagnosis(groups=[group()]),
            [],
            [(WORKER_NODE, WORKER_LOG, "worker of the first ValueError in f0"), *HEAD_LOGS],
        ),
        (
            Diagnosis(nodes=[DepartedNode(WORKER_NODE, "gpu-3", 1, False, "")]),
            [],
            [(WORKER_NODE, "raylet.out", "node gpu-3, until it left"), *HEAD_LOGS],
        ),
    ],
    ids=["nothing wrong", "failed job", "interrupted job", "unknown drivers", "failed task", "lost node"],
)
def test_logs_of_failed_things_come_first_and_empty_ones_are_left_out(
    diagnosis: Diagnosis, jobs: list[Job], expected: list[tuple[str, str, str]]
) -> None:
    found = suggest_logs(request_with(FILES), diagnosis, jobs)
    assert [(log.node_id, log.name, log.why) for log in found] == expected
    assert [log.size for log in found] == [FILES[log.node_id, log.name] for log in found]


def test_a_file_is_suggested_once_and_the_list_is_short() -> None:
    files = FILES | {(HEAD, f"job-driver-j{number}.log"): 1 for number in range(20)}
    jobs = [job(f"j{number}", "FAILED") for number in range(20)]
    assert len(suggest_logs(request_with(files), Diagnosis(), jobs)) == MOST
    found = suggest_logs(request_with(FILES), Diagnosis(groups=[group(1), group(2)]), [])
    assert [log.name for log in found].count(WORKER_LOG) == 1


def test_addresses_of_a_suggestion() -> None:
    log = Suggestion("n", "a b.log", 1, "")
    assert log.page == "_log?node_id=n&filename=a+b.log"
    assert log.in_dashboard == "#/logs/viewer?nodeId=n&fileName=a+b.log"
