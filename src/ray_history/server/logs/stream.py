"""The bytes of a log in pieces, however long it or its lines are: an answer holds a few blocks of 4 MiB."""

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
"""What Ray's dashboard removes: colours."""
_ANSI_BEGUN = re.compile(rb"\x1b(\[[(0-9);]{0,64})?\Z")


def pieces(request: SessionRequest, meant: Target, lines: int) -> Iterator[bytes]:
    """The bytes, as they may be shown; the first are read already, so that the status tells what cannot be read."""
    found = _found(request, meant, lines)
    return without_secrets(meant.file.name, found) if request.redact else found


def _found(request: SessionRequest, meant: Target, lines: int) -> Iterator[bytes]:
    logs, file = request.open.logs, meant.file
    try:
        return _begun(request, logs.open(file), meant, lines)
    except NotFound:  # its tails may have become a whole object since they were listed
        logs, file = found_again(request.open.files, logs, file)
        return _begun(request, logs.open(file), meant, lines)


def _begun(request: SessionRequest, reader: LogReader, meant: Target, lines: int) -> Iterator[bytes]:
    start = first_byte(reader, meant, lines)
    if request.http.method == "HEAD":
        return iter(())
    rest = reader.stream(start, meant.end)
    first = next(rest, None)
    return iter(()) if first is None else chain((first,), rest)


def first_byte(reader: LogReader, meant: Target, lines: int) -> int:
    if meant.start >= reader.size and meant.end is not None and meant.end > meant.start:
        raise ApiError(
            404,
            f"the archive has {reader.size} bytes of {meant.file.name}; what is asked for begins at {meant.start}: "
            "it was not stored before the node died",
        )
    return max(reader.line_start(lines, meant.end), meant.start)


def uncoloured(parts: Iterator[bytes]) -> Iterator[bytes]:
    colours = Colours()
    for piece in parts:
        yield colours.removed(piece)
    yield colours.held


class Colours:
    """Takes colours out of bytes that come in pieces."""

    def __init__(self) -> None:
        self.held = b""
        """What may be the beginning of a colour, and is one only if it goes on like one."""

    def removed(self, piece: bytes) -> bytes:
        text = ANSI.sub(b"", self.held + piece)
        begun = _ANSI_BEGUN.search(text, max(0, len(text) - 80))
        cut = begun.start() if begun else len(text)
        self.held = text[cut:]
        return text[:cut]


def found_again(files: SessionFiles, logs: LogFiles, file: LogFile) -> tuple[LogFiles, LogFile]:
    """The file in the archive as it is now. Tails are listed first: what is missing there stands in whole files."""
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
