"""A session as one zip file, `_download`, created while it is sent.

Nothing is written to a disk and little is held in memory: bytes go from the archive or from a query through the zip
into the response, and the work ends when the client disconnects. With redaction the file leaves out what cannot be
redacted: event files, polled snapshots, and the tables that contain both. Its `README.txt` says so.
"""

from __future__ import annotations

import logging
import re
import threading
import zipfile
from collections.abc import Generator, Iterator
from contextlib import closing
from io import RawIOBase
from typing import Any

import anyio
import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ray_history.archive.errors import ArchiveError
from ray_history.archive.log_files import LogFile, LogFiles
from ray_history.archive.stores import Store
from ray_history.history.read.tables import READING_FAILED
from ray_history.history.registry import TABLES
from ray_history.metrics import table_names
from ray_history.server.completeness.status import completeness_facts
from ray_history.server.http.responses import ApiError
from ray_history.server.redaction import log_lines
from ray_history.server.redaction.tables import without_secrets
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import SessionRoute

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 4
_RAW_TABLES = ("rare_events", "documents")
"""Tables of events and polled snapshots as Ray sent them."""
_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]')

_running = threading.BoundedSemaphore(MOST_AT_ONCE)


def download(request: SessionRequest) -> Response:
    """The session as a zip file: tables, logs, completeness."""
    session = request.open.session
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{session.cluster.namespace}-{session.cluster.name}-{session.name}")[:180]
    headers = {"Content-Disposition": f'attachment; filename="{name}.zip"', "Cache-Control": "no-store"}
    if request.http.method == "HEAD":
        return Response(headers=headers, media_type="application/zip")
    if not _running.acquire(blocking=False):
        raise ApiError(503, f"{MOST_AT_ONCE} downloads are already running; try again when one of them is done")
    return _ZipResponse(_zip(request), headers=headers)


def download_size(request: SessionRequest) -> int:
    """The approximate size of the download before compression: the stored size of its parts."""
    files, manifest = request.open.files, request.open.opened.manifest
    total = sum(info.size for _, _, info in files.whole_logs) + sum(info.size for _, info in files.tail_bundles)
    total += sum(file.size for file in manifest.files)
    if not request.redact:
        total += sum(file.stored.size for file in files.with_events) + sum(i.size for i in files.endpoints.values())
    return total


_Chunks = Generator[bytes, None, None]


class _ZipResponse(StreamingResponse):
    """Frees its place among the downloads when it is sent or the client disconnects."""

    media_type = "application/zip"

    def __init__(self, chunks: _Chunks, headers: dict[str, str]) -> None:
        super().__init__(chunks, headers=headers)
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            _running.release()
            with anyio.CancelScope(shield=True):
                await run_in_threadpool(self._chunks.close)


class _Sink(RawIOBase):
    """The output of zipfile that is not sent yet. It cannot seek, so zipfile writes sizes behind the contents."""

    def __init__(self) -> None:
        self._buffer: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._buffer.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        chunk = b"".join(self._buffer)
        self._buffer.clear()
        return chunk


def _zip(request: SessionRequest) -> _Chunks:
    sink = _Sink()
    problems: list[str] = []
    names: set[str] = set()
    with zipfile.ZipFile(sink, "w", compresslevel=1) as archive:
        for name, chunks, is_compressed in _members(request):
            archive.compression = zipfile.ZIP_STORED if is_compressed else zipfile.ZIP_DEFLATED
            with archive.open(_unique(name, names), "w", force_zip64=True) as member:
                try:
                    with closing(chunks):
                        for chunk in chunks:
                            member.write(chunk)
                            if ready := sink.take():
                                yield ready
                except ArchiveError as error:
                    problems.append(f"{name}: {error}")
        body = "\n".join(problems) or "Everything was read. This download is complete."
        archive.writestr("COMPLETE.txt", body + "\n")
    yield sink.take()


def _members(request: SessionRequest) -> Iterator[tuple[str, _Chunks, bool]]:
    """Names, contents, and whether these are compressed already."""
    yield "README.txt", _once(_readme(request).encode()), False
    yield (
        "completeness.json",
        _once(msgspec.json.format(msgspec.json.encode(request.redacted(completeness_facts(request))))),
        False,
    )
    for table in TABLES if request.redact else (*TABLES, *_RAW_TABLES):
        yield f"tables/{table}.parquet", _parquet(request, table), True
    for table in table_names.ALL:
        if rows := request.tables.file(table):
            yield f"tables/{table}.parquet", _rows_as_parquet(request, table, f"from {rows}"), True
    yield (
        "tables/facts.json",
        _once(msgspec.json.format(msgspec.json.encode(request.redacted(msgspec.structs.asdict(request.open.facts))))),
        False,
    )
    logs = request.open.logs
    for node in logs.nodes():
        for file in logs.list(node):
            yield f"logs/{node}/{file.name}", _log(logs, file, redact=request.redact), False
    if request.redact:
        return
    store = logs.store
    for event_file in request.open.files.with_events:
        key = event_file.stored.key
        yield f"events/{event_file.key.node}/{key.rpartition('/')[2]}", _stream(store, key), key.endswith(".gz")
    for name, stored in sorted(request.open.files.endpoints.items()):
        yield f"endpoints/{name}.json", _stream(store, stored.key), False


def _once(body: bytes) -> _Chunks:
    yield body


def _log(logs: LogFiles, file: LogFile, *, redact: bool) -> _Chunks:
    parts = logs.open(file).stream()
    yield from log_lines.without_secrets(file.name, parts) if redact else parts


def _stream(store: Store, key: str) -> _Chunks:
    yield from store.stream(key)


def _parquet(request: SessionRequest, table: str) -> _Chunks:
    tables = request.tables
    rows = f"from {table.removesuffix('s') if table in _RAW_TABLES else tables.source(table)}"
    yield from _rows_as_parquet(request, table, without_secrets(tables, table) if request.redact else rows)


def _rows_as_parquet(request: SessionRequest, table: str, sql: str) -> _Chunks:
    try:
        yield from request.tables.parquet(sql)
    except READING_FAILED as error:
        logger.error("cannot write table %s", table, exc_info=error)
        raise ArchiveError("cannot write the table; see the server log") from error


def _unique(name: str, taken: set[str]) -> str:
    """A name that unpacks below the current folder and differs from all others."""
    parts = [_UNSAFE.sub("_", part)[:200] for part in name.split("/") if part not in ("", ".", "..")]
    safe = "/".join(parts) or "_"
    number = 1
    while safe.lower() in taken:
        number += 1
        safe = "/".join([*parts[:-1], f"{number}-{parts[-1] if parts else '_'}"])
    taken.add(safe.lower())
    return safe


def _readme(request: SessionRequest) -> str:
    session = request.open.session
    parts = [
        f"Session {session.name} of cluster {session.cluster.namespace}/{session.cluster.name}",
        "",
        "completeness.json  events received and stored per node, and what could not be read",
        "tables/            one Parquet file per table: tasks, actors, jobs, nodes, metrics and others",
        "logs/              the stored log files of each node",
    ]
    if request.redact:
        parts += [
            "",
            "Secrets are redacted on this server. In the tables, the values of environment variables and of names that",
            "sound like secrets are <redacted>. The event files, the polled snapshots, and the tables rare_events and",
            "documents are left out, because they contain what Ray sent without changes. Log files are as programs",
            "wrote them, except for Ray's own files about events and runtime environments, which are redacted, too.",
        ]
    else:
        parts += [
            "events/            the events as Ray sent them",
            "endpoints/         snapshots of the dashboard, polled while the session ran",
            "",
            "This server shows secrets: events, snapshots and tables contain the values of environment variables.",
        ]
    parts += [
        "",
        "COMPLETE.txt, the last file, lists what could not be read. If it is missing, the download was interrupted.",
    ]
    return "\n".join(parts) + "\n"


routes = [SessionRoute("/_download", download, content={"application/zip": {}})]
