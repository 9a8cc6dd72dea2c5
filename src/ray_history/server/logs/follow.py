"""Following a log of a live session.

The archive is listed every two seconds and new bytes are sent, until the client disconnects or the node's collector has
ended. At most `MAX_FOLLOWERS` run at once; while waiting they need no thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ray_history.archive import layout
from ray_history.archive.errors import ArchiveError, NotFound, TooLarge
from ray_history.archive.ledger import MAX_SIZE as MAX_LEDGER
from ray_history.archive.ledger import Ledger
from ray_history.archive.ledger import decode as decode_ledger
from ray_history.archive.log_files import LogFile, LogFiles, LogReader
from ray_history.archive.session_files import SessionFiles
from ray_history.archive.stores.interface import READ_CHUNK, read_small
from ray_history.server.http.responses import ApiError
from ray_history.server.http.shutdown import until_shutdown
from ray_history.server.logs.stream import Colours, find_again, start_offset
from ray_history.server.logs.targets import Target
from ray_history.server.logs.task_marks import BeforeMark
from ray_history.server.redaction.log_lines import RedactedLines, written_by_ray
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.liveness import node_is_over

MAX_FOLLOWERS = 64
POLL = 2.0
"""Seconds between two listings of one follower."""
_LEDGER_POLL = 10.0
_IDLE_FOR = 600.0
"""Seconds without a new byte after which a log from a collector without ledger (KubeRay's) is over."""
_MAX_OUTAGE = 60.0
"""Seconds for which the archive may be unreachable before a follower gives up."""

_followers = threading.BoundedSemaphore(MAX_FOLLOWERS)


def follow(
    request: SessionRequest, target: Target, lines: int, headers: dict[str, str], *, without_colours: bool
) -> StreamingResponse:
    if not _followers.acquire(blocking=False):
        raise ApiError(
            503,
            f"too many followers: {MAX_FOLLOWERS} logs are being followed; "
            "close one, or get the current content from /api/v0/logs/file",
        )
    try:
        follower = Follower(request.open.files, request.open.logs, target, lines)
        redact_line = written_by_ray(target.file.name) if request.redact else None
        hidden = RedactedLines(redact_line) if redact_line else None
        part = BeforeMark() if target.ends_at_mark else None
        content = until_shutdown(request.http.scope, _follow(follower, part, hidden, without_colours=without_colours))
        response = _FollowedLog(content, headers=headers | _UNBUFFERED)
    except BaseException:
        _followers.release()
        raise
    return response


_UNBUFFERED = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
"""Neither compression nor a proxy may hold bytes back."""


class _FollowedLog(StreamingResponse):
    """An answer that lasts as long as a log, and then releases its place among the followers."""

    media_type = "text/plain"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            _followers.release()


async def _follow(
    follower: Follower, part: BeforeMark | None, lines: RedactedLines | None, *, without_colours: bool
) -> AsyncIterator[bytes]:
    colours = Colours()
    yield b""  # sends the headers before there is any byte
    async for piece in _pieces(follower, part):
        if lines:
            piece = await run_in_threadpool(lines.feed, piece)
        yield colours.remove(piece) if without_colours else piece
    rest = lines.finish() if lines else b""
    yield colours.remove(rest) + colours.held if without_colours else rest


async def _pieces(follower: Follower, part: BeforeMark | None) -> AsyncIterator[bytes]:
    """What is new, of one task as long as it runs."""
    while (piece := await run_in_threadpool(follower.next_piece)) is not None:
        if not piece:
            await asyncio.sleep(POLL)
            continue
        yield part.feed(piece) if part else piece
        if part and part.is_over:
            return
    if part:
        yield part.held


class Follower:
    """Reads a growing log: through new tails, the whole file that replaces them, and rotations."""

    def __init__(self, files: SessionFiles, logs: LogFiles, target: Target, lines: int) -> None:
        self._files = files
        self._logs, self._file = find_again(files, logs, target.file)
        self._reader = self._logs.open(self._file)
        # A task that runs may have ended since it was found, and the next one is not to be counted among its lines.
        found = replace(target, end=target.file.size) if target.ends_at_mark else target
        self._position = start_offset(self._reader, found, lines)
        self._before: list[tuple[LogReader, int]] = []
        """Former files of the same name, and where to continue in them."""
        self._stale = self._ended = False
        self._last_new_byte = self._last_success = time.monotonic()
        self._ledger: Ledger | None = None
        self._ledger_read = -1e9

    def next_piece(self) -> bytes | None:
        """New bytes; empty if there are none yet, None if there will be none."""
        try:
            piece = b"" if self._stale else self._unsent()
            if not piece:
                if self._ended and not self._stale:
                    return None
                # Checked before listing again, so that the last bytes are found.
                self._ended = self._ended or self._is_over()
                self._refresh()
                piece = self._unsent()
        except ArchiveError:  # a short outage, or tails that were deleted because a whole file contains their bytes now
            if time.monotonic() - self._last_success > _MAX_OUTAGE:
                raise
            self._stale = True
            return b""
        self._last_success = time.monotonic()
        return None if self._ended and not piece else piece

    def _unsent(self) -> bytes:
        """At most one block. The position advances only after a successful read."""
        while self._before:
            reader, start = self._before[0]
            if start < reader.size:
                piece = reader.read(start, start + READ_CHUNK)
                self._before[0] = reader, start + READ_CHUNK
                if piece:  # otherwise a gap
                    return piece
            else:
                self._before.pop(0)
        while self._position < self._reader.size:
            end = min(self._position + READ_CHUNK, self._reader.size)
            piece = self._reader.read(self._position, end)
            self._position = end
            if piece:
                self._last_new_byte = time.monotonic()
                return piece
        return b""

    def _refresh(self) -> None:
        logs, file = find_again(self._files, self._logs, self._file)
        if file == self._file and not self._stale:
            return
        reader = logs.open(file)
        if self._is_another(file):
            self._before = self._unsent_before(logs, file)
            self._position = 0
        self._logs, self._file, self._reader, self._stale = logs, file, reader, False

    def _is_another(self, file: LogFile) -> bool:
        """Whether the name now belongs to another file, after a rotation or replacement."""
        if not self._file.tails:
            return self._file.whole is not None and file.whole is None
        return bool(file.tails) and _generation(file) > _generation(self._file)

    def _unsent_before(self, logs: LogFiles, file: LogFile) -> list[tuple[LogReader, int]]:
        """The unsent rest of the file followed so far: in its tails, or in the whole file under its rotated name."""
        current = _generation(self._file)
        earlier = [each for each in reversed(logs.earlier(file)) if _generation(each) >= current]
        if earlier and _generation(earlier[0]) == current:
            return [(logs.open(each), 0 if each is not earlier[0] else self._position) for each in earlier]
        stem, dot, ending = file.name.rpartition(".")
        rotated = [f"{file.name}.1", f"{stem}.1{dot}{ending}"]  # as Python's and the C++ loggers name it
        known = {each.name: each for each in self._logs.list(file.node)}
        fresh = [each for each in logs.list(file.node) if each.name in rotated and known.get(each.name) != each]
        return [(logs.open(each), self._position) for each in [*fresh[:1]]] + [(logs.open(each), 0) for each in earlier]

    def _is_over(self) -> bool:
        if time.monotonic() - self._ledger_read > _LEDGER_POLL:
            self._ledger = self._read_ledger()
            self._ledger_read = time.monotonic()
        if self._ledger is None:
            return time.monotonic() - self._last_new_byte > _IDLE_FOR
        return node_is_over(self._ledger, time.time())

    def _read_ledger(self) -> Ledger | None:
        session = self._files.session
        key = layout.ledger_key(session.root, session.cluster, session.name, self._file.node)
        try:
            return decode_ledger(read_small(self._logs.store, key, MAX_LEDGER))
        except (NotFound, TooLarge):
            return None


def _generation(file: LogFile) -> int:
    """The generation of the file; -1 if only a whole object is left of it."""
    return max((tail.entry.generation for tail in file.tails), default=-1)
