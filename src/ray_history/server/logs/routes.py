"""Log files of a session: `/api/v0/logs/{file, stream}` and `/api/jobs/{id}/logs`.

Bytes pass unchanged, except for secrets in files of Ray's own (see log_secrets.py).
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
from ray_history.server.http.responses import JSON, Refused
from ray_history.server.logs.follow import follow
from ray_history.server.logs.listing import list_logs
from ray_history.server.logs.stream import pieces, uncoloured
from ray_history.server.logs.targets import Target, submission_file, target
from ray_history.server.sessions.endpoint import Asked, Handler

_DEFAULT_LINES = 1000


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
        return follow(asked, meant, lines, headers, without_colours=without_colours)
    sent = pieces(asked, meant, lines)
    if without_colours:
        sent = uncoloured(sent)
    return StreamingResponse(sent, headers=headers, media_type="text/plain")


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


def job_logs(asked: Asked) -> Response:
    """What a submitted job's driver printed, all of it, as `logs` of a JSON object."""
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
        return pieces(asked, Target(submission_file(asked, submission)), lines=-1)
    except Refused:
        if not rows:
            raise Refused(404, f"Job {job[:200]} does not exist") from None
        return iter(())


def _as_json(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Ray reads the file as text, so that each kind of line end becomes a newline; where it fails, a sign is put."""
    text = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    yield b'{"logs": "'
    for piece in parts:
        yield msgspec.json.encode(text.decode(piece))[1:-1]
    yield msgspec.json.encode(text.decode(b"", final=True))[1:-1]
    yield b'"}'


HANDLERS: dict[str, Handler] = {
    "/api/v0/logs": list_logs,
    "/api/v0/logs/{media_type}": send_log,
    "/api/jobs/{job_or_submission_id}/logs": job_logs,
}
