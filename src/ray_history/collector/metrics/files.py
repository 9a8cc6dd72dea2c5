"""Blocks on the collector's volume until they are in the bucket.

Invariants:
* a block is one file `<session>/<node>/<kind>/<first ms>.rhm`, replaced as a whole, so that a crash leaves the version
  before or after it;
* the recorder writes the file of an open block again and again, and then calls it closed; what a crash left is closed;
* a file is deleted when its object is in the bucket. An object that was stored before a crash is stored again, with the
  same key and content.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ray_history.archive.layout import MetricBlockKey

MAX_BYTES = 64 << 20
"""Of blocks that wait for the bucket: more than a day of a busy head. The oldest are deleted first."""

_SUFFIX = ".rhm"


@dataclass(frozen=True, slots=True, order=True)
class BlockFile:
    """A block on the volume."""

    first_ms: int
    session: str
    node: str
    kind: str
    path: Path
    size: int

    @property
    def key(self) -> MetricBlockKey:
        return MetricBlockKey(self.node, self.kind, self.first_ms)


class BlockFiles:
    """The directory of blocks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, session: str, key: MetricBlockKey) -> Path:
        return self._directory / session / key.node / key.endpoint / f"{key.first_ms:013d}{_SUFFIX}"

    def write(self, path: Path, block: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".new")
        with temporary.open("wb") as file:
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)

    def all(self) -> list[BlockFile]:
        """All blocks, oldest first."""
        return sorted(self._found())

    def _found(self) -> Iterator[BlockFile]:
        for path in self._directory.glob(f"*/*/*/*{_SUFFIX}"):
            session, node, kind, _ = path.relative_to(self._directory).parts
            with suppress(FileNotFoundError, ValueError):
                yield BlockFile(int(path.stem), session, node, kind, path, path.stat().st_size)

    def remove(self, file: BlockFile) -> None:
        file.path.unlink(missing_ok=True)
        for folder in list(file.path.parents)[:3]:
            try:
                folder.rmdir()
            except OSError:  # not empty
                return
