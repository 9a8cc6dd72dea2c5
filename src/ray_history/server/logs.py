"""Log files of a session: `/api/v0/logs`, `/api/v0/logs/{file, stream}` and `/api/jobs/{id}/logs`.

Bytes pass unchanged and in pieces, however long a log or its lines are: an answer holds a few blocks of 4 MiB. `stream`
follows a log while its session is still written: the archive is listed every two seconds and new bytes are sent, until
the client leaves or the node's collector has ended. At most `MOST_FOLLOWERS` do that; waiting, they hold no thread.
"""

from __future__ import annotations

import asyncio
import codecs
import fnmatch
import io
import re
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import chain
from pathlib import PurePosixPath
from urllib.parse import quote

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ray_history.archive import layout
from ray_history.archive.errors import ArchiveError, NotFound
from ray_history.archive.log_files import LogFile, LogFiles, LogReader
from ray_history.archive.session_files import SessionFiles
from ray_history.archive.stores.interface import READ_CHUNK

from .answers import JSON, Refused, enveloped
from .asking import boolean, integer
from .handling import Asked, Handler
from .log_targets import Target, nodes_meant, submission_file, target

MOST_FOLLOWERS = 64
POLL = 2.0
"""Seconds between two looks into the archive, for one follower."""
_LEDGER_POLL = 10.0
_SILENT_AFTER = 120.0
"""Seconds after a collector's next sign of life was due, until what it follows counts as over."""
_IDLE_FOR = 600.0
"""Seconds without a new byte after which a log is over, where a collector without ledger (KubeRay's) wrote it."""
_PATIENCE = 60.0
"""Seconds that the archive may be unreachable under a follower."""

_DEFAULT_LINES = 1000
_LONGEST_GLOB = 1000
_ANSI = re.compile(rb"\x1b\[[(0-9);]+m")
"""What Ray's dashboard removes: colours."""
_ANSI_BEGUN = re.compile(rb"\x1b(\[[(0-9);]{0,64})?\Z")

_CATEGORIES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("worker_out", lambda name: "worker" in name and name.endswith(".out")),
    ("worker_err", lambda name: "worker" in name and name.endswith(".err")),
    ("core_worker", lambda name: "core-worker" in name and name.endswith(".log")),
    ("driver", lambda name: "core-driver" in name and name.endswith(".log")),
    ("raylet", lambda name: "raylet." in name),
    ("gcs_server", lambda name: "gcs_server." in name),
    ("internal", lambda name: "log_monitor" in name),
    ("autoscaler", lambda name: "monitor" in name),
    ("agent", lambda name: "agent." in name),
    ("dashboard", lambda name: "dashboard." in name),
)
"""The first that fits is a file's category, as in Ray; `internal` when none does."""

_followers = threading.BoundedSemaphore(MOST_FOLLOWERS)


# Listing


def list_logs(asked: Asked) -> Response:
    """The names of a node's log files, and of directories with files in them, by category."""
    integer(asked.query, "timeout", 30, least=0)
    fits = _glob(asked.query.get("glob") or "*")
    (node, *_) = nodes_meant(asked)
    categories: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(_names(asked.open.logs, node)):
        if fits(name):
            categories[next((category for category, holds in _CATEGORIES if holds(name)), "internal")].append(name)
    return enveloped({"result": categories})


def _names(logs: LogFiles, node: str) -> set[str]:
    names = {file.name for file in logs.list(node)}
    return names | {f"{folder}/" for name in names for folder in map(str, PurePosixPath(name).parents) if folder != "."}


def _glob(pattern: str) -> Callable[[str], bool]:
    """Whether a name fits, as `pathlib` globs below a directory: `*` stays inside a folder, `**` is any folders.

    Costs at most the parts of the name times those of the pattern; `fnmatch` itself does not backtrack.
    """
    parts = PurePosixPath(pattern).parts
    if pattern.startswith("/") or ".." in parts or "\0" in pattern:
        raise Refused(400, f"Invalid glob filter: {pattern[:80]}. It must be a relative path and cannot contain '..'.")
    if not parts or len(pattern) > _LONGEST_GLOB or any("**" in part and part != "**" for part in parts):
        raise Refused(
            400,
            f"Invalid glob filter: {pattern[:80]}. It takes at most {_LONGEST_GLOB} characters, "
            "and '**' only as an entire path component.",
        )
    tests = [None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts]
    folders_only = pattern.endswith("/") or parts[-1] == "**"

    def fits(name: str) -> bool:
        if folders_only and not name.endswith("/"):
            return False
        reached = _with_no_folders(tests, {0})
        for piece in name.rstrip("/").split("/"):
            after = set()
            for at in reached:
                test = tests[at] if at < len(tests) else _NOTHING
                if test is None:
                    after.add(at)
                elif test.match(piece):
                    after.add(at + 1)
            reached = _with_no_folders(tests, after)
        return len(tests) in reached

    return fits


_NOTHING = re.compile(r"(?!)")


def _with_no_folders(tests: Sequence[re.Pattern[str] | None], reached: set[int]) -> set[int]:
    """Positions in a pattern, and those behind a `**`, which may be no folder at all."""
    every = set(reached)
    for at in reached:
        behind = at
        while behind < len(tests) and tests[behind] is None:
            behind += 1
            every.add(behind)
    return every


# Sending


def send_log(asked: Asked) -> Response:
    """The bytes of a log: its last lines, or all."""
    query, kind = asked.query, asked.part("media_type")
    if kind not in ("file", "stream"):
        raise Refused(400, f"Invalid media type: {kind[:40]}; it takes /api/v0/logs/file or /api/v0/logs/stream")
    lines = integer(query, "lines", _DEFAULT_LINES) or _DEFAULT_LINES
    integer(query, "timeout", 30)  # nothing here waits for a node
    _check_interval(query.get("interval", ""))
    without_colours = boolean(query, "filter_ansi_code", default=False)
    inline = boolean(query, "inline", default=False)
    headers = {
        "Content-Disposition": "inline" if inline else _attachment(query.get("download_filename") or "file.txt"),
        "X-Content-Type-Options": "nosniff",
    }
    meant = target(asked)
    if kind == "stream" and meant.grows and asked.open.ended_ns is None and asked.request.method == "GET":
        return _follow(asked, meant, lines, headers, without_colours=without_colours)
    pieces = _pieces(asked, meant, lines)
    if without_colours:
        pieces = _uncoloured(pieces)
    return StreamingResponse(pieces, headers=headers, media_type="text/plain")


def _pieces(asked: Asked, meant: Target, lines: int) -> Iterator[bytes]:
    """The bytes; the first are read already, so that what cannot be read is told by the status."""
    logs, file = asked.open.logs, meant.file
    try:
        return _begun(asked, logs.open(file), meant, lines)
    except NotFound:  # its tails may have become a whole object since they were listed
        logs, file = _found_again(asked.open.files, logs, file)
        return _begun(asked, logs.open(file), meant, lines)


def _begun(asked: Asked, reader: LogReader, meant: Target, lines: int) -> Iterator[bytes]:
    start = _first_byte(reader, meant, lines)
    if asked.request.method == "HEAD":
        return iter(())
    pieces = reader.stream(start, meant.end)
    first = next(pieces, None)
    return iter(()) if first is None else chain((first,), pieces)


def _first_byte(reader: LogReader, meant: Target, lines: int) -> int:
    if meant.start >= reader.size and meant.end is not None and meant.end > meant.start:
        raise Refused(
            404,
            f"the archive has {reader.size} bytes of {meant.file.name}; what is asked for begins at {meant.start}: "
            "it was not stored before the node died",
        )
    return max(reader.line_start(lines, meant.end), meant.start)


def _uncoloured(pieces: Iterator[bytes]) -> Iterator[bytes]:
    colours = _Colours()
    for piece in pieces:
        yield colours.removed(piece)
    yield colours.held


class _Colours:
    """Takes colours out of bytes that come in pieces."""

    def __init__(self) -> None:
        self.held = b""
        """What may be the beginning of a colour, and is one only if it goes on like one."""

    def removed(self, piece: bytes) -> bytes:
        text = _ANSI.sub(b"", self.held + piece)
        begun = _ANSI_BEGUN.search(text, max(0, len(text) - 80))
        cut = begun.start() if begun else len(text)
        self.held = text[cut:]
        return text[:cut]


def _attachment(filename: str) -> str:
    """`Content-Disposition` by RFC 6266: a plain name for everyone, and the exact one encoded if that is another."""
    name = re.sub(r"[\x00-\x1f\x7f-\x9f/\\]+", "_", filename)[:255].strip(". ") or "file.txt"
    name = name.encode("utf-8", "replace").decode()
    plain = re.sub(r'[^ -~]|["%;]', "_", name)
    header = f'attachment; filename="{plain}"'
    return header if plain == name else f"{header}; filename*=UTF-8''{quote(name, safe='')}"


def _check_interval(text: str) -> None:
    try:
        float(text or 1)
    except ValueError:
        raise Refused(400, f"interval is {text[:40]!r}; it takes seconds") from None


# Following


def _follow(
    asked: Asked, meant: Target, lines: int, headers: dict[str, str], *, without_colours: bool
) -> StreamingResponse:
    if not _followers.acquire(blocking=False):
        raise Refused(
            503,
            f"{MOST_FOLLOWERS} logs are being followed already; "
            "close one, or get this one as it is now from /api/v0/logs/file",
        )
    try:
        follower = Follower(asked.open.files, asked.open.logs, meant, lines)
        response = _Followed(_as_they_come(follower, without_colours=without_colours), headers=headers | _AT_ONCE)
    except BaseException:
        _followers.release()
        raise
    return response


_AT_ONCE = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
"""Neither compression nor a proxy may hold bytes back."""


class _Followed(StreamingResponse):
    """An answer that goes on as long as a log does; its place among the followers is free after it."""

    media_type = "text/plain"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            _followers.release()


async def _as_they_come(follower: Follower, *, without_colours: bool) -> AsyncIterator[bytes]:
    colours = _Colours()
    yield b""  # sends the headers, before there may be any byte
    while (piece := await run_in_threadpool(follower.next_piece)) is not None:
        if piece:
            yield colours.removed(piece) if without_colours else piece
        else:
            await asyncio.sleep(POLL)
    yield colours.held


class Follower:
    """Reads on in a log that grows: through new tails, through the whole file that replaces them, through rotations."""

    def __init__(self, files: SessionFiles, logs: LogFiles, meant: Target, lines: int) -> None:
        self._files = files
        self._logs, self._file = _found_again(files, logs, meant.file)
        self._reader = self._logs.open(self._file)
        self._position = _first_byte(self._reader, meant, lines)
        self._before: list[tuple[LogReader, int]] = []
        """Files that stood behind the name before, and where to go on in them."""
        self._stale = self._ended = False
        self._moved = self._reached = time.monotonic()
        self._ledger: _Ledger | None = None
        self._ledger_read = -1e9

    def next_piece(self) -> bytes | None:
        """New bytes; empty when there are none yet, None when there will be none."""
        try:
            piece = b"" if self._stale else self._unsent()
            if not piece:
                if self._ended and not self._stale:
                    return None
                self._ended = (
                    self._ended or self._is_over()
                )  # asked before looking again, so that the last bytes are seen
                self._look_again()
                piece = self._unsent()
        except ArchiveError:  # a hiccup, or tails that were deleted because a whole file has their bytes now
            if time.monotonic() - self._reached > _PATIENCE:
                raise
            self._stale = True
            return b""
        self._reached = time.monotonic()
        return None if self._ended and not piece else piece

    def _unsent(self) -> bytes:
        """At most one block; the position moves only once it was read."""
        while self._before:
            reader, start = self._before[0]
            if start < reader.size:
                piece = reader.read(start, start + READ_CHUNK)
                self._before[0] = reader, start + READ_CHUNK
                if piece:  # else it was a gap
                    return piece
            else:
                self._before.pop(0)
        while self._position < self._reader.size:
            end = min(self._position + READ_CHUNK, self._reader.size)
            piece = self._reader.read(self._position, end)
            self._position = end
            if piece:
                self._moved = time.monotonic()
                return piece
        return b""

    def _look_again(self) -> None:
        logs, file = _found_again(self._files, self._logs, self._file)
        if file == self._file and not self._stale:
            return
        reader = logs.open(file)
        if self._is_another(file):
            self._before = self._left_behind(logs, file)
            self._position = 0
        self._logs, self._file, self._reader, self._stale = logs, file, reader, False

    def _is_another(self, file: LogFile) -> bool:
        """Whether another file stands behind the name now: it was rotated, or replaced."""
        if not self._file.tails:
            return self._file.whole is not None and file.whole is None
        return bool(file.tails) and _generation(file) > _generation(self._file)

    def _left_behind(self, logs: LogFiles, file: LogFile) -> list[tuple[LogReader, int]]:
        """What was not sent of the file followed so far: in its tails, or in the whole file under its rotated name."""
        seen = _generation(self._file)
        earlier = [each for each in reversed(logs.earlier(file)) if _generation(each) >= seen]
        if earlier and _generation(earlier[0]) == seen:
            return [(logs.open(each), 0 if each is not earlier[0] else self._position) for each in earlier]
        stem, dot, ending = file.name.rpartition(".")
        rotated = [f"{file.name}.1", f"{stem}.1{dot}{ending}"]  # Python's loggers; the C++ ones
        known = {each.name: each for each in self._logs.list(file.node)}
        fresh = [each for each in logs.list(file.node) if each.name in rotated and known.get(each.name) != each]
        return [(logs.open(each), self._position) for each in [*fresh[:1]]] + [(logs.open(each), 0) for each in earlier]

    def _is_over(self) -> bool:
        if time.monotonic() - self._ledger_read > _LEDGER_POLL:
            self._ledger = self._read_ledger()
            self._ledger_read = time.monotonic()
        if self._ledger is None:
            return time.monotonic() - self._moved > _IDLE_FOR
        return self._ledger.ended is not None or time.time() > self._ledger.alive_until + _SILENT_AFTER

    def _read_ledger(self) -> _Ledger | None:
        session = self._files.session
        key = layout.ledger_key(session.root, session.cluster, session.name, self._file.node)
        try:
            return msgspec.json.decode(self._logs.store.get(key), type=_Ledger)
        except (NotFound, msgspec.MsgspecError):
            return None


class _Ledger(msgspec.Struct):
    """What a collector says of itself; the rest of its ledger does not matter here."""

    alive_until: float = 0.0
    ended: str | None = None


def _generation(file: LogFile) -> int:
    """Which file stands behind the name; -1 when only a whole object is left of it."""
    return max((tail.entry.generation for tail in file.tails), default=-1)


def _found_again(files: SessionFiles, logs: LogFiles, file: LogFile) -> tuple[LogFiles, LogFile]:
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


# Jobs


def job_logs(asked: Asked) -> Response:
    """What a submitted job's driver printed, all of it, as a JSON string."""
    try:
        return StreamingResponse(_as_json(job_log(asked)), media_type=JSON)
    except Refused as refused:  # Ray says these two as plain text
        return PlainTextResponse(refused.message, refused.status)


def job_log(asked: Asked) -> Iterator[bytes]:
    """The log of a submitted job's driver; empty if it wrote none."""
    job = asked.part("job_or_submission_id")
    rows = asked.tables.rows(
        f"select submission_id from {asked.tables.source('jobs', asked.view)} "
        "where job_id = $1 or submission_id = $1 order by (job_id = $1) desc nulls last",
        [job],
    )
    submission = rows[0][0] if rows else job
    if not submission:
        raise Refused(400, "Can only get logs of submission type jobs")
    try:
        return _pieces(asked, Target(submission_file(asked, submission)), lines=-1)
    except Refused:
        if not rows:
            raise Refused(404, f"Job {job[:200]} does not exist") from None
        return iter(())


def _as_json(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Ray reads the file as text, so that each kind of line end becomes a newline; where it fails, a sign is put."""
    text = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    yield b'{"logs": "'
    for piece in pieces:
        yield msgspec.json.encode(text.decode(piece))[1:-1]
    yield msgspec.json.encode(text.decode(b"", final=True))[1:-1]
    yield b'"}'


HANDLERS: dict[str, Handler] = {
    "/api/v0/logs": list_logs,
    "/api/v0/logs/{media_type}": send_log,
    "/api/jobs/{job_or_submission_id}/logs": job_logs,
}
