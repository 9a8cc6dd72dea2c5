"""The session and the node id are read from the files of Ray."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from ray_history.collector.node.identity import RayNode
from tests.support.captured import captured

OLD, NEW = "session_2026-01-01_00-00-00_000001_1", "session_2026-01-02_00-00-00_000001_1"
HEAD, WORKER = "a" * 56, "b" * 56


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in (OLD, NEW):
        (tmp_path / name / "logs").mkdir(parents=True)
    (tmp_path / "session_latest").symlink_to(tmp_path / NEW)
    (tmp_path / "session_odd").mkdir()
    return tmp_path


def port_file(session: Path, what: str, node: str, age: float = 0.0) -> None:
    path = session / f"{what}_port_{node}"
    path.write_text("41951")
    os.utime(path, (1e9 - age, 1e9 - age))


def test_before_ray_there_is_no_session(tmp_path: Path) -> None:
    node = RayNode(tmp_path / "not there", head=True)
    assert node.current() is None
    assert node.ended_sessions() == []


def test_the_link_names_the_current_session_and_the_rest_are_earlier_ones(root: Path) -> None:
    node = RayNode(root, head=True)
    current = node.current()
    assert current is not None
    assert (current.name, current.logs) == (NEW, (root / NEW / "logs").resolve())
    assert [session.name for session in node.ended_sessions()] == [OLD]


def test_a_relative_link_and_a_dangling_link(root: Path) -> None:
    (root / "session_latest").unlink()
    (root / "session_latest").symlink_to(OLD)
    current = RayNode(root, head=True).current()
    assert current is not None
    assert current.name == OLD
    (root / "session_latest").unlink()
    (root / "session_latest").symlink_to("nowhere")
    assert RayNode(root, head=True).current() is None


def test_port_files_tell_the_node(root: Path) -> None:
    node = RayNode(root, head=False)
    current = node.current()
    assert current is not None
    assert node.node_id(current) is None
    port_file(root / NEW, "metrics_export", WORKER)
    assert node.node_id(current) == WORKER
    assert node.metrics_port(current, WORKER) == 41951
    assert node.metrics_port(current, HEAD) is None


@pytest.mark.parametrize(
    ("content", "port"),
    [
        (
            '{"192.0.2.2:/tmp/ray/s/sockets/plasma_store": {"metrics_agent_port": 5, "metrics_export_port": 56965}}',
            56965,
        ),
        ('{"192.0.2.2:/s/plasma_store": {"metrics_export_port": 1}, "192.0.2.2:/s/plasma_store.1": {}}', None),
        ('{"192.0.2.2:/tmp/ray/s/sockets/plasma_store": {}}', None),
        ('{"192.0.2.2:/tmp', None),
        ("[]", None),
    ],
)
def test_before_ray_2_54_a_file_of_all_raylets_has_the_port(root: Path, content: str, port: int | None) -> None:
    node = RayNode(root, head=True)
    current = node.current()
    assert current is not None
    (root / NEW / "ports_by_node.json").write_text(content)
    assert node.metrics_port(current, HEAD) == port


def test_two_raylets_on_one_machine_are_distinguished_by_role(root: Path) -> None:
    port_file(root / NEW, "gcs_server", HEAD)
    port_file(root / NEW, "metrics_export", HEAD)
    port_file(root / NEW, "metrics_export", WORKER)
    for head, expected in ((True, HEAD), (False, WORKER)):
        node = RayNode(root, head=head)
        current = node.current()
        assert current is not None
        assert node.node_id(current) == expected


def test_a_restarted_raylet_is_the_newest(root: Path) -> None:
    port_file(root / NEW, "metrics_export", "c" * 56, age=100)
    port_file(root / NEW, "metrics_export", WORKER)
    node = RayNode(root, head=False)
    current = node.current()
    assert current is not None
    assert node.node_id(current) == WORKER


def test_a_raylet_that_starts_again_is_known_before_its_port_files_come(root: Path) -> None:
    port_file(root / NEW, "metrics_export", WORKER, age=100)
    node, logs = RayNode(root, head=False), root / NEW / "logs"
    current = node.current()
    assert current is not None
    (logs / "raylet.out").write_bytes(b"(raylet) node_id=" + WORKER.encode())
    assert not node.is_starting(current)
    (logs / "raylet.1.out").touch()
    assert node.is_starting(current)
    assert node.node_id(current) == WORKER
    (logs / "raylet.1.out").write_bytes(b"(raylet) node_id=" + b"c" * 56)
    assert not node.is_starting(current)
    assert node.node_id(current) == "c" * 56
    os.utime(logs / "raylet.1.out", (1e9 - 50, 1e9 - 50))  # it never came up, and the next did
    port_file(root / NEW, "metrics_export", "d" * 56)
    assert node.node_id(current) == "d" * 56


def test_a_rotated_log_does_not_look_like_a_start_for_long(root: Path) -> None:
    node, log = RayNode(root, head=False), root / NEW / "logs" / "raylet.out"
    current = node.current()
    assert current is not None
    log.write_bytes(b"goes on\n" * 1000)
    assert not node.is_starting(current)
    log.write_bytes(b"goes on\n")
    assert node.is_starting(current)
    os.utime(log, (1e9, 1e9))
    assert not node.is_starting(current)


def test_raylets_beside_a_head_of_an_old_ray_are_not_taken_for_it(root: Path) -> None:
    for name, identity, at in (("raylet.out", HEAD, 1e9), ("raylet.1.out", WORKER, 1e9 + 1)):
        (root / NEW / "logs" / name).write_bytes(b"(raylet) node_id=" + identity.encode())
        os.utime(root / NEW / "logs" / name, (at, at))
    node = RayNode(root, head=True)
    current = node.current()
    assert current is not None
    assert node.node_id(current) == HEAD


def test_the_raylets_log_has_the_node_of_an_ended_session(root: Path) -> None:
    capture = captured()
    logs = {name: (node, body) for (node, name), body in capture.logs.items() if name == "raylet.out"}
    expected, body = logs["raylet.out"]
    (root / OLD / "logs" / "raylet.out").write_bytes(body)
    node = RayNode(root, head=True)
    assert [node.node_id(session) for session in node.ended_sessions()] == [expected]


def test_events_and_the_hook_file_are_the_last_resorts(root: Path) -> None:
    node = RayNode(root, head=False)
    current = node.current()
    assert current is not None
    (root / "raylet_node_id").write_text(WORKER.upper() + "\n")
    assert node.node_id(current) == WORKER
    node.node_seen(NEW, HEAD)
    node.node_seen(NEW, "d" * 56)
    assert node.node_id(current) == HEAD


def test_a_damaged_hook_file_is_ignored(root: Path) -> None:
    node = RayNode(root, head=False)
    current = node.current()
    assert current is not None
    (root / "raylet_node_id").write_bytes(b"\xff" * 56)
    assert node.node_id(current) is None


def test_the_users_setting_takes_precedence(root: Path) -> None:
    port_file(root / NEW, "metrics_export", WORKER)
    node = RayNode(root, head=False, node_id=HEAD.upper(), session_dir=root / OLD)
    current = node.current()
    assert current is not None
    assert (current.name, node.node_id(current)) == (OLD, HEAD)


def test_a_raylet_that_answers_is_alive() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:  # the path of a socket may be 107 bytes long
        root = Path(short)
        node = RayNode(root, head=False)
        assert not node.is_alive()
        (root / NEW / "sockets").mkdir(parents=True)
        (root / "session_latest").symlink_to(NEW)
        assert not node.is_alive()
        with socket.socket(socket.AF_UNIX) as raylet:
            raylet.bind(str(root / NEW / "sockets" / "raylet"))
            raylet.listen()
            assert node.is_alive()
        assert not node.is_alive()
