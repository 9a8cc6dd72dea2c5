"""The installed `ray-history` command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name("ray-history"))


def run(*arguments: str, text: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **env}
    command = [COMMAND, *arguments]
    return subprocess.run(command, env=clean, input=text, capture_output=True, text=True, timeout=60, check=False)
