"""Log files of a session: `/api/v0/logs/{file, stream}` and `/api/jobs/{id}/logs`.

Bytes are sent unchanged, except for secrets in files that Ray itself writes (see `redaction/log_lines.py`).
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from urllib.parse import quote

import msgspec
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from ray_history.server.http.query_params import boolean, integer
from ray_history.server.http.responses import JSON, ApiError
from ray_history.server.logs.follow import follow
from ray_history.server.logs.listing import list_logs
from ray_history.server.logs.stream import log_bytes, remove_colours
from ray_history.server.logs.targets import (
    NODE_ID,
    NODE_IP,
    TARGET_PARAMETERS,
    Target,
    requested_target,
    submission_file,
)
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import (
    FLAG,
    NUMBER,
    OBJECT,
    PLAIN_TEXT,
    TEXT,
    TIMEOUT,
    Parameter,
    SessionRoute,
    array_of,
    enveloped_schema,
    json_of,
    object_with,
    one_of_texts,
)

_DEFAULT_LINES = 1000


def send_log(request: SessionRequest) -> Response:
    """The bytes of a log: its last lines, or all."""
    query, kind = request.query, request.path_param("media_type")
    if kind not in ("file", "stream"):
        raise ApiError(400, f"invalid media type {kind[:40]!r}: expected /api/v0/logs/file or /api/v0/logs/stream")
    lines = integer(query, "lines", _DEFAULT_LINES) or _DEFAULT_LINES
    integer(query, "timeout", 30)  # validated, but without effect: nothing here waits for a node
    _check_interval(query.get("interval", ""))
    without_colours = boolean(query, "filter_ansi_code", default=False)
    inline = boolean(query, "inline", default=False)
    headers = {
        "Content-Disposition": "inline" if inline else _attachment(query.get("download_filename") or "file.txt"),
        "X-Content-Type-Options": "nosniff",
    }
    target = requested_target(request)
    if kind == "stream" and target.grows and request.open.ended_ns is None and request.http.method == "GET":
        return follow(request, target, lines, headers, without_colours=without_colours)
    content = log_bytes(request, target, lines)
    if without_colours:
        content = remove_colours(content)
    return StreamingResponse(content, headers=headers, media_type="text/plain")


def _attachment(filename: str) -> str:
    """`Content-Disposition` by RFC 6266: an ASCII name for old clients, and the exact one encoded if it differs."""
    name = re.sub(r"[\x00-\x1f\x7f-\x9f/\\]+", "_", filename)[:255].strip(". ") or "file.txt"
    name = name.encode("utf-8", "replace").decode()
    plain = re.sub(r'[^ -~]|["%;]', "_", name)
    header = f'attachment; filename="{plain}"'
    return header if plain == name else f"{header}; filename*=UTF-8''{quote(name, safe='')}"


def _check_interval(text: str) -> None:
    try:
        float(text or 1)
    except ValueError:
        raise ApiError(400, f"invalid interval {text[:40]!r}: expected seconds") from None


def job_logs(request: SessionRequest) -> Response:
    """The complete output of a submitted job's driver, as `logs` of a JSON object."""
    try:
        return StreamingResponse(_as_json(job_log(request)), media_type=JSON)
    except ApiError as refused:  # Ray sends these as plain text
        return PlainTextResponse(refused.message, refused.status)


def job_log(request: SessionRequest) -> Iterator[bytes]:
    """The log of a submitted job's driver; empty if it wrote none."""
    job = request.path_param("job_or_submission_id")
    rows = request.tables.rows(
        f"select submission_id from {request.tables.source('jobs', request.view)} "
        "where job_id = $1 or submission_id = $1 order by (job_id = $1) desc nulls last",
        [job],
    )
    submission = rows[0][0] if rows else job
    if not submission:
        raise ApiError(400, "Can only get logs of submission type jobs")
    try:
        return log_bytes(request, Target(submission_file(request, submission)), lines=-1)
    except ApiError:
        if not rows:
            raise ApiError(404, f"Job {job[:200]} does not exist") from None
        return iter(())


def _as_json(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Ray reads the file as text: every kind of line end becomes a newline, and invalid bytes are replaced."""
    text = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    yield b'{"logs": "'
    for piece in parts:
        yield msgspec.json.encode(text.decode(piece))[1:-1]
    yield msgspec.json.encode(text.decode(b"", final=True))[1:-1]
    yield b'"}'


_NODE = (NODE_ID, NODE_IP)
_FILE = (
    *TARGET_PARAMETERS,
    Parameter("lines", NUMBER, "Number of lines from the end; -1 for the whole file."),
    Parameter("filter_ansi_code", FLAG, "Strip terminal colors."),
    Parameter("download_filename", TEXT, "File name to save the log under."),
    Parameter("inline", FLAG, "Show in the browser instead of downloading."),
    TIMEOUT,
    Parameter("interval", {"type": "number"}, "Accepted for compatibility with Ray; has no effect."),
)

routes = [
    SessionRoute(
        "/api/v0/logs",
        list_logs,
        parameters=(*_NODE, Parameter("glob", TEXT, "Only files whose name matches this pattern."), TIMEOUT),
        content=json_of(enveloped_schema(object_with({"result": OBJECT | {"additionalProperties": array_of(TEXT)}}))),
        forwarded=True,
    ),
    SessionRoute(
        "/api/v0/logs/{media_type}",
        send_log,
        parameters=_FILE,
        path_schemas={"media_type": one_of_texts("file", "stream")},
        content=PLAIN_TEXT,
        forwarded=True,
        head_path="/api/v0/logs/file",  # live/routes.py passes on `stream`, which never ends by itself
    ),
    SessionRoute(
        "/api/jobs/{job_or_submission_id}/logs",
        job_logs,
        content=json_of(object_with({"logs": TEXT})),
        refuses_in_plain_text=True,
        forwarded=True,
    ),
]
