"""Which session `ray-history attach` and `ray-history snapshot` record."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ray_history.local.attach import CannotAttach, find_session
from ray_history.local.environment import EXPORT_ADDRESS
from ray_history.local.processes import FoundSession, OneSession, running_sessions
from tests.cli.installed import run
from tests.local.raylets import raylet


def test_sessions_with_a_raylet_run(sessions: list[Path]) -> None:
    with raylet(sessions[0]), raylet(sessions[1], **{EXPORT_ADDRESS: "http://127.0.0.1:9/v1/events"}):
        found = {each.directory: each.exports_to for each in running_sessions() if each.directory in sessions}
        assert found == {sessions[0]: "", sessions[1]: "http://127.0.0.1:9/v1/events"}
        assert find_session(sessions[0]).directory == sessions[0]
        with pytest.raises(CannotAttach, match="it is recorded already"):
            find_session(sessions[1])
        with pytest.raises(CannotAttach, match="several sessions run: choose one with --session-dir"):
            find_session(None)
        with pytest.raises(CannotAttach, match="no Ray of this user runs in"):
            find_session(sessions[2])


def test_a_session_runs_as_long_as_its_raylet(sessions: list[Path]) -> None:
    watch = OneSession(FoundSession(sessions[0]))
    with raylet(sessions[0]):
        watch.look()
        assert watch.sessions[sessions[0].name].is_running
    watch.look()
    assert not watch.sessions[sessions[0].name].is_running


@pytest.mark.parametrize("verb", ["attach", "snapshot"])
def test_without_a_ray_there_is_nothing_to_record(tmp_path: Path, verb: str) -> None:
    done = run(verb, "--session-dir", str(tmp_path), HOME=str(tmp_path), PATH=os.environ["PATH"])
    assert (done.returncode, done.stderr) == (2, f"Error: no Ray of this user runs in {tmp_path}\n")
