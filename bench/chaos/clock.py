"""A clock that jumps, in real processes: a library that is preloaded moves CLOCK_REALTIME, and nothing else."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")


class Clock:
    """The clock of the processes that are started with `variables`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._file.write_bytes(bytes(8))
        self._library = folder / "clock.so"
        compiler = ("cc", "-O2", "-shared", "-fPIC", "-o", self._library, SOURCE, "-ldl", "-lm")
        subprocess.run(compiler, check=True, capture_output=True)

    @staticmethod
    def can_jump() -> bool:
        return shutil.which("cc") is not None

    @property
    def variables(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file)}

    def jump(self, seconds: float) -> None:
        """Be ahead of the machine's clock by this."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("d", seconds))
