"""What a process and a directory take up."""

from __future__ import annotations

import os
import resource
import subprocess
from contextlib import suppress
from pathlib import Path


def memory_of(pid: int) -> int:
    """Bytes of memory that a process holds; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except FileNotFoundError:
        return 0 if os.path.exists("/proc/self/statm") else _memory_by_ps(pid)
    except ProcessLookupError:
        return 0


def _memory_by_ps(pid: int) -> int:
    """The same where there is no /proc, as on macOS."""
    printed = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=False)
    return int(printed.stdout or 0) << 10


def disk_of(directory: Path) -> int:
    """Bytes of the files in a directory; files that are removed meanwhile do not count."""
    size = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):
                size += os.lstat(os.path.join(folder, name)).st_size
    return size
