"""Everything of a session as one file: `_download`, a zip that is made while it is sent.

Nothing is written to a disk here and little is held in memory: bytes go from the archive, or from a query, through the
zip into the answer, and the work ends when the client leaves. Where secrets are hidden, what cannot be shown without
them (event files, polled answers, and the tables that hold both) stays out, and the file's `README.txt` says so.
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
from ray_history.server.completeness.status import completeness_facts
from ray_history.server.http.responses import ApiError
from ray_history.server.redaction import log_lines as log_secrets
from ray_history.server.redaction.tables import without_secrets
from ray_history.server.sessions.endpoint import SessionRequest, shown
from ray_history.server.sessions.routes import SessionRoute

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 4
_TABLES = (
    "tasks", "actors", "jobs", "nodes", "workers", "placement_groups", "runtime_envs", "cluster_events",
)  # fmt: skip
_WHOLE = ("rare_events", "documents")
"""Events and polled answers as they came."""
_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]')

_running = threading.BoundedSemaphore(MOST_AT_ONCE)


def download(request: SessionRequest) -> Response:
    """Everything as one zip: tables, logs, the account of what is kept."""
    session = request.open.session
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{session.cluster.namespace}-{session.cluster.name}-{session.name}")[:180]
    headers = {"Content-Disposition": f'attachment; filename="{name}.zip"', "Cache-Control": "no-store"}
    if request.http.method == "HEAD":
        return Response(headers=headers, media_type="application/zip")
    if not _running.acquire(blocking=False):
        raise ApiError(503, f"{MOST_AT_ONCE} downloads are under way already; try again when one of them is done")
    return _Zipped(_zipped(request), headers=headers)


def download_size(request: SessionRequest) -> int:
    """About how many bytes there are to be packed: those of the archive that go in."""
    files, manifest = request.open.files, request.open.opened.manifest
    total = sum(info.size for _, _, info in files.whole_logs) + sum(info.size for _, info in files.tail_bundles)
    total += sum(file.size for file in manifest.files)
    if not request.redact:
        total += sum(file.stored.size for file in files.event_files) + sum(i.size for i in files.endpoints.values())
    return total


_Pieces = Generator[bytes, None, None]


class _Zipped(StreamingResponse):
    """Its place among the downloads is free once it is sent, or once its client is gone."""

    media_type = "application/zip"

    def __init__(self, pieces: _Pieces, headers: dict[str, str]) -> None:
        super().__init__(pieces, headers=headers)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            _running.release()
            with anyio.CancelScope(shield=True):
                await run_in_threadpool(self._pieces.close)


class _Sink(RawIOBase):
    """What was zipped and not yet sent. It cannot be wound back, so that zipfile writes sizes behind the contents."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._held.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        piece = b"".join(self._held)
        self._held.clear()
        return piece


def _zipped(request: SessionRequest) -> _Pieces:
    sink = _Sink()
    problems: list[str] = []
    names: set[str] = set()
    with zipfile.ZipFile(sink, "w", compresslevel=1) as archive:
        for name, pieces, packed in _members(request):
            archive.compression = zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED
            with archive.open(_unique(name, names), "w", force_zip64=True) as member:
                try:
                    with closing(pieces):
                        for piece in pieces:
                            member.write(piece)
                            if ready := sink.taken():
                                yield ready
                except ArchiveError as error:
                    problems.append(f"{name}: {error}")
        body = "\n".join(problems) or "Everything that this file should hold is in it."
        archive.writestr("COMPLETE.txt", body + "\n")
    yield sink.taken()


def _members(request: SessionRequest) -> Iterator[tuple[str, _Pieces, bool]]:
    """Names, contents in pieces, and whether these are packed already."""
    yield "README.txt", _once(_readme(request).encode()), False
    yield (
        "completeness.json",
        _once(msgspec.json.format(msgspec.json.encode(shown(request, completeness_facts(request))))),
        False,
    )
    for table in _TABLES if request.redact else (*_TABLES, *_WHOLE):
        yield f"tables/{table}.parquet", _parquet(request, table), True
    yield (
        "tables/facts.json",
        _once(msgspec.json.format(msgspec.json.encode(shown(request, request.open.facts)))),
        False,
    )
    logs = request.open.logs
    for node in logs.nodes():
        for file in logs.list(node):
            yield f"logs/{node}/{file.name}", _log(logs, file, redact=request.redact), False
    if request.redact:
        return
    store = logs.store
    for event_file in request.open.files.event_files:
        key = event_file.stored.key
        yield f"events/{event_file.key.node}/{key.rpartition('/')[2]}", _stream(store, key), key.endswith(".gz")
    for name, stored in sorted(request.open.files.endpoints.items()):
        yield f"endpoints/{name}.json", _stream(store, stored.key), False


def _once(body: bytes) -> _Pieces:
    yield body


def _log(logs: LogFiles, file: LogFile, *, redact: bool) -> _Pieces:
    parts = logs.open(file).stream()
    yield from log_secrets.without_secrets(file.name, parts) if redact else parts


def _stream(store: Store, key: str) -> _Pieces:
    yield from store.stream(key)


def _parquet(request: SessionRequest, table: str) -> _Pieces:
    tables = request.tables
    rows = f"from {table.removesuffix('s') if table in _WHOLE else tables.source(table)}"
    try:
        yield from tables.parquet(without_secrets(tables, table) if request.redact else rows)
    except READING_FAILED as error:
        logger.error("table %s could not be written", table, exc_info=error)
        raise ArchiveError("the table could not be written; the server's log says more") from error


def _unique(name: str, taken: set[str]) -> str:
    """A name that unpacks below the folder it is unpacked in, and that no other file has."""
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
        "completeness.json  what collectors received and stored, node by node, and what could not be read",
        "tables/            one Parquet file per table: tasks, actors, jobs, nodes and others",
        "logs/              the log files of each node, as far as they were stored",
    ]
    if request.redact:
        parts += [
            "",
            "Secrets are hidden on this server. The tables hold <redacted> in the place of environment variables, and",
            "of whatever is named like a secret. Left out are the event files, the polled answers of the dashboard,",
            "and the tables rare_events and documents, since these hold whatever Ray sent. Log files are as programs",
            "wrote them; in those that Ray itself writes about events and runtime environments secrets are hidden too.",
        ]
    else:
        parts += [
            "events/            the events as Ray sent them",
            "endpoints/         answers of the dashboard, polled while the session ran",
            "",
            "This server was told to show secrets: events, answers and tables hold values of environment variables.",
        ]
    parts += [
        "",
        "COMPLETE.txt, the last file, says what could not be read. If it is missing, the download was cut off.",
    ]
    return "\n".join(parts) + "\n"


routes = [SessionRoute("/_download", download, content={"application/zip": {}})]
