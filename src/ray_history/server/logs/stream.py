"""The bytes of a log in pieces. Whatever its length, an answer holds a few blocks of 4 MiB in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from ray_history.archive import layout
from ray_history.archive.errors import NotFound
from ray_history.archive.log_files import LogFile, LogFiles, LogReader
from ray_history.archive.session_files import SessionFiles
from ray_history.server.http.responses import ApiError
from ray_history.server.logs.targets import Target
from ray_history.server.redaction.log_lines import without_secrets
from ray_history.server.sessions.endpoint import SessionRequest

ANSI = re.compile(rb"\x1b\[[(0-9);]+m")
"""The colours that Ray's dashboard removes."""
_ANSI_START = re.compile(rb"\x1b(\[[(0-9);]{0,64})?\Z")


def log_bytes(request: SessionRequest, target: Target, lines: int) -> Iterator[bytes]:
    """The bytes, without secrets. The first are read at once, so that an error becomes the status of the answer."""
    content = _open(request, target, lines)
    return without_secrets(target.file.name, content) if request.redact else content


def _open(request: SessionRequest, target: Target, lines: int) -> Iterator[bytes]:
    logs, file = request.open.logs, target.file
    try:
        return _start(request, logs.open(file), target, lines)
    except NotFound:  # since it was listed, its tails may have been replaced by a whole object
        logs, file = find_again(request.open.files, logs, file)
        return _start(request, logs.open(file), target, lines)


def _start(request: SessionRequest, reader: LogReader, target: Target, lines: int) -> Iterator[bytes]:
    start = start_offset(reader, target, lines)
    if request.http.method == "HEAD":
        return iter(())
    rest = reader.stream(start, target.end)
    first = next(rest, None)
    return iter(()) if first is None else chain((first,), rest)


def start_offset(reader: LogReader, target: Target, lines: int) -> int:
    if target.start >= reader.size and target.end is not None and target.end > target.start:
        raise ApiError(
            404,
            f"the archive has {reader.size} bytes of {target.file.name}; the requested part begins at {target.start}: "
            "it was not stored before the node died",
        )
    return max(reader.line_start(lines, target.end), target.start)


def remove_colours(parts: Iterator[bytes]) -> Iterator[bytes]:
    colours = Colours()
    for piece in parts:
        yield colours.remove(piece)
    yield colours.held


class Colours:
    """Removes colours from bytes that come in pieces."""

    def __init__(self) -> None:
        self.held = b""
        """The end of a piece, if a colour may begin there."""

    def remove(self, piece: bytes) -> bytes:
        text = ANSI.sub(b"", self.held + piece)
        start = _ANSI_START.search(text, max(0, len(text) - 80))
        cut = start.start() if start else len(text)
        self.held = text[cut:]
        return text[:cut]


def find_again(files: SessionFiles, logs: LogFiles, file: LogFile) -> tuple[LogFiles, LogFile]:
    """The file as it is in the archive now. Tails are listed first: bytes missing there are already in a whole file."""
    session, store, node = files.session, logs.store, file.node
    where = (session.root, session.cluster, session.name)
    bundles = list(store.list(layout.join(layout.tails_prefix(*where), node)))
    folder = layout.join(layout.session_prefix(*where), node, "logs")
    objects = list(store.list(folder))
    if not objects:
        folder = layout.join(layout.legacy_session_prefix(*where), "logs", node)
        objects = list(store.list(folder))
    newer = logs.renewed(
        [(node, each.key.removeprefix(folder + "/"), each) for each in objects], [(node, each) for each in bundles]
    )
    return newer, newer.find(node, file.name)
