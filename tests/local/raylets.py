"""Processes that look like a raylet, or like a driver, to those who look for sessions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

NAMES = [f"session_2026-11-20_00-25-2{number}_342264_164{number}" for number in range(3)]
RAYLET = "/somewhere/ray/core/src/ray/raylet/raylet"
WAITS = "import sys; print('ready', flush=True); sys.stdin.read()"


@contextmanager
def process(*arguments: str, name: str = sys.executable, opens: Path | None = None, **env: str) -> Iterator[int]:
    """A process with these arguments and this environment, once it runs."""
    with ExitStack() as files:
        held = [files.enter_context((opens / "logs" / "held").open("w")).fileno()] if opens else []
        started = subprocess.Popen(
            [name, "-c", WAITS, *arguments],
            executable=sys.executable,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=held,
        )
        assert started.stdin is not None
        assert started.stdout is not None
        try:
            started.stdout.readline()
            yield started.pid
        finally:
            started.stdin.close()
            started.wait()
            started.stdout.close()


def raylet(session: Path, **env: str) -> AbstractContextManager[int]:
    return process("--node_manager_port=0", f"--session_dir={session}", name=RAYLET, **env)
