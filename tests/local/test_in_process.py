"""`ray_history.init()` where no Ray starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ray_history
from tests.support.waiting import until

SCRIPT = """
import os, sys
import ray_history
before = dict(os.environ)
first = ray_history.init(cluster="mine")
assert ray_history.init() == first
assert os.environ["RAY_enable_ray_event"] == "true"
assert os.environ["RAY_ray_events_report_interval_ms"] == "5000", "what the user has set wins"
ray_history.load_ipython_extension(None)
"""


def test_the_variables_are_set_and_nothing_is_left_behind(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "RAY_ray_events_report_interval_ms": "5000"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    link = "http://127.0.0.1:8080/s/default/mine/latest/_session (after: ray-history ui)"
    assert done.stdout == f"Ray is recorded: {link}\n"
    until(lambda: not list((tmp_path / ".ray-history" / "runs").iterdir()))


def test_under_run_it_does_nothing(tmp_path: Path) -> None:
    script = "import ray_history; print(ray_history.init())"
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "RAY_HISTORY_RUN": "1-2"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.stderr == "ray-history: this process is recorded by `ray-history run` already\n"
    assert not (tmp_path / ".ray-history" / "runs").exists()


def test_other_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'start'"):
        ray_history.start  # noqa: B018
