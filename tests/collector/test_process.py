"""`ray-history collect` and the drop-in `collector`, as people and pods start them."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.support.processes import Process, free_port, port_is_open
from tests.support.waiting import until

from .collector_process import SESSION, AgentStandIn, CollectorProcess, run_cli

DROP_IN = str(Path(sys.executable).with_name("collector"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--storage=memory://x",), "no cluster name given: use --cluster NAME or set RAY_CLUSTER_NAME"),
        (("--cluster=c", "--storage-backend=tape"), "unknown storage backend"),
        (("--storage=memory://x", "--cluster=c", "--role=Boss"), "use Head or Worker"),
        (("--storage=memory://x", "--cluster=c", "--push-interval=10"), "write a duration such as 10s"),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    shown = run_cli("collect", *arguments)
    assert shown.returncode == 2
    assert message in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        shown = run_cli(
            "collect",
            f"--storage={tmp_path.as_uri()}",
            "--cluster=c",
            f"--events-port={port}",
            f"--event-data-dir={tmp_path / 'data'}",
        )
    assert shown.returncode == 2
    assert "check --events-host and --events-port" in shown.stderr


def test_two_collectors_do_not_share_a_volume(tmp_path: Path) -> None:
    with CollectorProcess(tmp_path, (tmp_path / "archive").as_uri(), "--enable-log-collector=false"):
        shown = run_cli(
            "collect",
            f"--storage={tmp_path.as_uri()}",
            "--cluster=c",
            f"--events-port={free_port()}",
            f"--event-data-dir={tmp_path / 'data'}",
        )
    assert shown.returncode != 0
    assert "Traceback" not in shown.stderr
    assert "--event-data-dir" in shown.stderr


def drop_in(folder: Path, port: int, arguments: list[str], env: dict[str, str]) -> Process:
    """The drop-in as a pod runs it: a clean environment."""
    clean = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    words = [f"{key}={value}" for key, value in {**clean, **env}.items()]
    return Process(["env", "-i", *words, DROP_IN, *arguments], log=folder / "log", ready=lambda: port_is_open(port))


def assert_it_keeps_events(process: Process, port: int, archive: Path) -> None:
    agent = AgentStandIn(port)
    agent.start()
    until(lambda: agent.acknowledged)
    agent.stop()
    os.killpg(process.pid, signal.SIGTERM)
    until(lambda: not process.running)
    assert [path.name for path in archive.rglob(SESSION) if path.is_file()] == [SESSION], process.log_tail()
    assert list(archive.rglob("*.jsonl.gz"))


def test_the_drop_in_runs_by_environment_alone(tmp_path: Path) -> None:
    folder, port = tmp_path, free_port()
    env = {
        "STORAGE_BACKEND": "localtest",
        "STORAGE_ROOT_DIR": str(folder / "archive"),
        "RAY_CLUSTER_NAME": "pod",
        "RAY_CLUSTER_NAMESPACE": "team",
        "RAY_ROLE": "Worker",
        "RAY_TMP_ROOT": str(folder / "ray"),
        "POD_IP": "10.0.0.1",
        "FQ_RAY_IP": "pod-head-svc",
        "EVENTS_PORT": str(port),
        "OWNER_KIND": "RayJob",
        "OWNER_NAME": "nightly",
    }
    with drop_in(folder, port, [], env) as process:
        assert_it_keeps_events(process, port, folder / "archive")
    assert (folder / "archive" / "cluster-metadata" / "rayjob" / "team_nightly_pod").is_dir()


def test_the_drop_in_takes_gos_flags(tmp_path: Path) -> None:
    folder, port = tmp_path, free_port()
    arguments = [
        "-role=Head",
        "--runtime-class-name=localtest",
        "-ray-root-dir",
        str(folder / "archive"),
        "--ray-cluster-name=flags",
        "--ray-cluster-id=default",
        f"--events-port={port}",
        "--enable-log-collector=false",
        "--log-batching=1000",
        "--push-interval=1m",
    ]
    with drop_in(folder, port, arguments, {"RAY_TMP_ROOT": str(folder / "ray")}) as process:
        assert_it_keeps_events(process, port, folder / "archive")
