"""Memory and disk that a build takes up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ray_history.index.build import usage


def test_the_memory_of_a_process() -> None:
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # before, it may not have loaded anything
        assert 1 << 20 < usage.memory_of(process.pid) < 1 << 30
        process.kill()
        process.wait()
        assert usage.memory_of(process.pid) == 0


@pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps")
def test_the_memory_of_a_process_where_there_is_no_proc() -> None:
    assert 1 << 20 < usage._memory_by_ps(os.getpid()) < 100 << 30


def test_the_size_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "one").write_bytes(b"x" * 1000)
    (tmp_path / "two").write_bytes(b"x" * 24)
    (tmp_path / "link").symlink_to("/nowhere")
    assert usage.disk_of(tmp_path) == 1024 + len("/nowhere")
