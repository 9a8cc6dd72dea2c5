"""A small disk that can be full or read-only: a tmpfs, which only root may mount."""

from __future__ import annotations

import os
import random
import subprocess
from contextlib import suppress
from pathlib import Path

BLOCK = 16 * 1024


class SmallDisk:
    """A mounted tmpfs."""

    def __init__(self, folder: Path, mebibytes: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._ballast = folder / "ballast"
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "chaos", folder], check=True)

    @staticmethod
    def can_mount() -> bool:
        return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0

    def fill(self, chance: random.Random) -> None:
        """Leave at most a few blocks, so that some writes succeed and some fail in the middle."""
        if not self.folder.is_mount():  # somebody unmounted it: never fill the disk of the machine
            raise RuntimeError(f"{self.folder} is not mounted any more")
        with suppress(OSError), self._ballast.open("ab", buffering=0) as file:
            while file.write(bytes(BLOCK)) == BLOCK:
                pass
        with suppress(OSError):
            os.truncate(self._ballast, max(0, self._ballast.stat().st_size - chance.randrange(4 * BLOCK)))

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def make_read_only(self) -> bool:
        """Whether that was possible: not while a file is open for writing."""
        return self._remount("ro")

    def make_writable(self) -> None:
        self._remount("rw")

    def _remount(self, mode: str) -> bool:
        command = ["mount", "-o", f"remount,{mode}", self.folder]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def unmount(self) -> None:
        subprocess.run(["umount", "-l", self.folder], check=False)
