"""What a build gets, what it reports, and how it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from ray_history.index.locks import CancelToken
from ray_history.index.manifest import Manifest
from ray_history.index.sources import Sources

Reason: TypeAlias = Literal["memory", "time", "disk", "error"]


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of opening a session."""

    stage: str = "listing"
    """listing, fetching the index, reading events, making tables, publishing (unless that is deferred), or ready."""
    files: int = 0
    files_total: int = 0
    bytes: int = 0
    bytes_total: int = 0
    events: int = 0


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """The index to build."""

    sources: Sources
    directory: Path
    """Where the files are written: empty, but for what the base needs."""
    base: Path | None = None
    """The directory of the index to build on."""
    base_manifest: Manifest | None = None
    is_background: bool = False
    """No user waits for it: it runs at the lowest priority, and stops when its place is needed."""
    is_frugal: bool = False
    """The first try took too much memory: save it at any cost, and leave out what is too large."""

    @property
    def stored_bytes(self) -> int:
        """The size of all objects that the build reads."""
        events = self.sources.beyond(self.base_manifest)
        return sum(file.stored.size for file in events) + self.sources.other_bytes


class BuildFailed(Exception):
    """The tables of a session could not be made. The message is one sentence for the user."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


Report: TypeAlias = Callable[[Progress], None]


class Builds(Protocol):
    """Builds indexes. For many threads."""

    def build(self, order: BuildOrder, report: Report, cancel: CancelToken) -> Manifest:
        """Write the files of an index, and return its manifest. Raises `BuildFailed`, and the errors of the archive."""

    def prepare(self) -> None:
        """Get ready for the first order."""

    def close(self) -> None:
        """End running builds, and take no more orders."""
