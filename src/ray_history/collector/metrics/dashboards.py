"""The dashboards that Ray's head writes for Grafana when its own dashboard starts, stored once per session.

Ray writes one file after the other, and each is empty until it is whole. So they are complete when all of them are JSON
and two looks found the same files.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ray_history.collector.destination import Destination
from ray_history.collector.node.identity import RayNode, RaySession
from ray_history.metrics.dashboards import FILE_SUFFIX, MAX_BYTES, MAX_FILES, InvalidDashboards, pack

logger = logging.getLogger(__name__)

_PLACE = ("metrics", "grafana", "dashboards")
"""Below the session directory."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_Seen = tuple[str, frozenset[tuple[str, int, int]]]
"""The session, and the name, size and time of the last write of each file."""


class SessionDashboards:
    """Stores the dashboards of the current session, again only if they change."""

    def __init__(
        self, destination: Destination, node: RayNode, environ: Mapping[str, str] = os.environ, *, is_head: bool
    ) -> None:
        self._destination, self._node, self._environ, self._is_head = destination, node, environ, is_head
        self._seen: _Seen | None = None
        """What the last look found."""
        self._done: _Seen | None = None
        """What was stored, or cannot be."""
        self._warning = ""

    def tick(self, *, is_last: bool = False) -> None:
        """Store the dashboards once they are complete; raises errors of the store."""
        session = self._node.current()
        if not self._is_head or session is None:
            return
        try:
            with _directory(session, self._environ) as folder:
                seen = session.name, frozenset(_files(folder))
                is_settled = seen == self._seen or is_last
                self._seen = seen
                if not seen[1] or seen == self._done or not is_settled:
                    return
                packed = pack(_contents(folder, seen))
        except (FileNotFoundError, NotADirectoryError):  # not written yet, or replaced at this moment
            return
        except OSError as error:
            self._warn(f"cannot be read: {error}")
            return
        except InvalidDashboards as error:
            self._warn(f"are not stored: {error}")
        else:
            self._destination.store.put(self._destination.metric_dashboards(session.name), packed)
        self._done = seen

    def _warn(self, text: str) -> None:
        if text != self._warning:
            logger.warning("the dashboards for Grafana %s", text)
        self._warning = text


@contextmanager
def _directory(session: RaySession, environ: Mapping[str, str]) -> Iterator[int]:
    """The directory to which Ray's variables move the dashboards, or their place below the session directory."""
    moved = environ.get("RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR", "")
    if not moved and (root := environ.get("RAY_METRICS_OUTPUT_ROOT", "")):
        moved = str(Path(root, *_PLACE[1:]))
    folder = os.open(moved or session.directory, _DIRECTORY)
    try:
        for part in () if moved else _PLACE:
            # Links are not followed: writing below the session directory must not make the collector read other files.
            below = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def _files(folder: int) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(FILE_SUFFIX) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                yield entry.name, status.st_size, status.st_mtime_ns


def _contents(folder: int, seen: _Seen) -> dict[str, bytes]:
    if len(seen[1]) > MAX_FILES or sum(size for _, size, _ in seen[1]) > MAX_BYTES:
        raise InvalidDashboards(f"they are more than {MAX_FILES} files or {MAX_BYTES} bytes")
    return {name: _content(folder, name) for name, _, _ in seen[1]}


def _content(folder: int, name: str) -> bytes:
    with open(os.open(name, _FILE, dir_fd=folder), "rb") as file:
        return file.read(MAX_BYTES + 1)
