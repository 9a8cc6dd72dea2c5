"""Writes log files whose lines have unique numbers, and rotates, truncates and rewrites them.

Files of three kinds, so that it is certain what must be in the archive:

* durable: appended and rotated, and nothing is deleted. Every byte must come out;
* rewritten: truncated or written anew in place. The last content must come out, and of former ones nothing invented;
* short: deleted again. What comes out must have been written.
"""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from pathlib import Path

KINDS = ("durable", "rewritten", "short")
FILES = 6
"""Of each kind."""
_LINE = re.compile(rb"(\w+-\d+) (\d{9}) (\.*)\n")
_START = re.compile(rb"(\w+-\d+)( \d{0,9}| \d{9} \.*)")


def line(writer: str, number: int) -> bytes:
    """A line that can be checked from its first two words."""
    return f"{writer} {number:09d} {'.' * (number * 7919 % 180)}\n".encode()


def invented_lines(content: bytes, written: dict[str, int]) -> list[bytes]:
    """The lines that nobody has written; `written` is the number of lines by writer."""
    return [each for each in content.splitlines(keepends=True) if not _is_written(each, written)]


def _is_written(each: bytes, written: dict[str, int]) -> bool:
    match = _LINE.fullmatch(each)
    if match is None and not each.endswith(b"\n"):  # the last one: the file was truncated while it was written
        match = _START.fullmatch(each)
        return any(writer.encode().startswith(each) or (match and match[1].decode() == writer) for writer in written)
    if match is None:
        return False
    writer, number = match[1].decode(), int(match[2])
    return number < written.get(writer, 0) and line(writer, number) == each


class LogFiles(threading.Thread):
    """The processes of a Ray node that log."""

    def __init__(self, folder: Path, *, seed: int, pause: float = 0.02) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._pause = pause
        self._random = random.Random(seed)
        self._ending = threading.Event()
        self._backups: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        """Lines by writer."""
        self.durable_bytes = 0
        self.faults: Counter[str] = Counter()

    def run(self) -> None:
        while not self._ending.wait(self._pause):
            kind = self._random.choices(KINDS, (5, 4, 2))[0]
            getattr(self, f"_{kind}")(f"{kind}-{self._random.randrange(FILES)}")

    def stop(self) -> None:
        self._ending.set()
        self.join(30)

    def move_to(self, folder: Path) -> None:
        """Log into another session's folder from now on."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._backups.clear()

    def _lines(self, writer: str, most: int = 20) -> bytes:
        first = self.written[writer]
        self.written[writer] += self._random.randint(1, most)
        return b"".join(line(writer, number) for number in range(first, self.written[writer]))

    def _durable(self, writer: str) -> None:
        path = self.folder / f"{writer}.out"
        if self._random.random() < 0.1 and path.exists():
            self._rotate(path)
        content = self._lines(writer)
        with path.open("ab") as file:
            file.write(content)
        self.durable_bytes += len(content)

    def _rotate(self, path: Path) -> None:
        for number in range(self._backups[path.name], 0, -1):
            path.with_name(f"{path.name}.{number}").rename(path.with_name(f"{path.name}.{number + 1}"))
        path.rename(path.with_name(f"{path.name}.1"))
        self._backups[path.name] += 1
        self.faults["log rotated"] += 1

    def _rewritten(self, writer: str) -> None:
        path, chance = self.folder / f"{writer}.txt", self._random.random()
        if chance < 0.3 and path.exists():
            self.faults["log truncated"] += 1
            with path.open("r+b") as file:
                file.truncate(0)
                file.write(self._lines(writer, 5))
        elif chance < 0.6:
            self.faults["log rewritten"] += 1
            path.write_bytes(self._lines(writer))
        else:
            with path.open("ab") as file:
                file.write(self._lines(writer))

    def _short(self, writer: str) -> None:
        path = self.folder / f"{writer}.log"
        if path.exists() and self._random.random() < 0.3:
            self.faults["log deleted"] += 1
            path.unlink()
        else:
            with path.open("ab") as file:
                file.write(self._lines(writer))
