"""Finding the sessions of marked processes."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from ray_history.local.environment import EXPORT_ADDRESS, MARK
from ray_history.local.processes import Watch
from ray_history.local.sessions import WatchedNode, dashboard_address
from tests.local.raylets import NAMES, process, raylet


def test_a_session_of_a_marked_raylet_is_ours_and_runs_with_it(sessions: list[Path]) -> None:
    watch = Watch("7-1")
    with ExitStack() as running:
        running.enter_context(raylet(sessions[0], **{MARK: "7-1"}))
        running.enter_context(raylet(sessions[1], **{MARK: "7-11"}))
        watch.look()
        (found,) = watch.sessions.values()
        assert (found.directory, found.is_ours, found.is_running) == (sessions[0], True, True)
    watch.look()
    assert not watch.sessions[NAMES[0]].is_running


def test_a_session_that_ran_before_is_found_by_the_open_files_of_the_driver(sessions: list[Path]) -> None:
    watch = Watch("7-1")
    with (
        process(opens=sessions[1], **{MARK: "7-1"}),
        raylet(sessions[1], **{EXPORT_ADDRESS: "http://127.0.0.1:9/v1/events"}),
    ):
        watch.look()
        found = watch.sessions[NAMES[1]]
        assert (found.is_ours, found.is_running, found.exports_to) == (False, True, "http://127.0.0.1:9/v1/events")
        assert WatchedNode(watch, Path("/nonexistent")).current() is None, "another collector records it"


def test_the_newest_session_is_current_and_the_others_have_ended(sessions: list[Path]) -> None:
    watch = Watch("7-1")
    node = WatchedNode(watch, Path("/nonexistent"))
    for session in sessions:
        with raylet(session, **{MARK: "7-1"}):
            watch.look()
        current = node.current()
        assert current is not None
        assert current.directory == session
    assert [session.name for session in node.ended_sessions()] == NAMES[:2]
    assert node.has_session(NAMES[0])
    assert not node.has_session("session_2026-11-20_00-25-29_342264_1")


def test_processes_of_others_are_no_problem(tmp_path: Path) -> None:
    watch = Watch("7-1", proc=tmp_path)
    (tmp_path / str(os.getpid() + 1)).mkdir()
    (tmp_path / "self").mkdir()
    watch.look()
    assert watch.sessions == {}


@pytest.mark.parametrize(
    ("log", "address"),
    [
        ("x\nhttp server initialized at 127.0.0.1:8266\n", "127.0.0.1:8266"),
        ("Dashboard head http address: 10.0.0.1:8265\ny", "10.0.0.1:8265"),
        ("starting\n", ""),
        (None, ""),
    ],
)
def test_the_address_of_the_dashboard_is_in_its_log(tmp_path: Path, log: str | None, address: str) -> None:
    if log is not None:
        (tmp_path / "dashboard.log").write_text(log)
    assert dashboard_address(tmp_path) == address
