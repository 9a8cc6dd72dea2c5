"""A session as the server sees it: the progress of its opening, and its completeness."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.server.completeness.report import completeness_report, unknown_types
from ray_history.server.completeness.sources import sources, unknown
from ray_history.server.http.responses import ApiError, plain_json
from ray_history.server.http.shutdown import until_shutdown
from ray_history.server.sessions.ending import ending
from ray_history.server.sessions.endpoint import SessionRequest, archive_refusal
from ray_history.server.sessions.manager import Sessions
from ray_history.server.sessions.routes import OBJECT, SessionRoute, json_of

logger = logging.getLogger(__name__)

_REFRESH = 0.25
"""Seconds between two events."""


class Status:
    """`_status`: starts to open the session if necessary, and reports the progress as JSON or server-sent events."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session: Session = scope["ray_history.session"]
        note = scope.get("ray_history.note", "")
        self._sessions.start(session)
        response: Response
        if "text/event-stream" in Request(scope).headers.get("accept", ""):
            events = until_shutdown(scope, self._events(session, note))
            response = StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        else:
            response = plain_json(self._report(session, note))
        await response(scope, receive, send)

    def _report(self, session: Session, note: str) -> dict[str, Any]:
        progress = self._sessions.status(session)
        return {"session": session.name, "ready": progress.stage == "ready", "note": note, **asdict(progress)}

    async def _events(self, session: Session, note: str) -> AsyncIterator[bytes]:
        last: dict[str, Any] = {}
        opening = asyncio.ensure_future(self._open(session))
        try:
            while not last.get("ready"):
                report = self._report(session, note)
                if opening.done():
                    reason = opening.result()
                    report |= {"stage": "failed", "reason": reason} if reason else {"stage": "ready", "ready": True}
                if report != last:
                    yield b"data: " + msgspec.json.encode(report) + b"\n\n"
                if report["stage"] == "failed":
                    return
                last = report
                await asyncio.wait({opening}, timeout=_REFRESH)
        finally:
            opening.cancel()

    async def _open(self, session: Session) -> str:
        """The reason why it cannot be opened; empty once it is open."""
        try:
            self._sessions.release(await self._sessions.acquire(session))
        except ArchiveError as error:
            return archive_refusal(error).message
        except ApiError as error:
            return error.message
        except Exception as error:  # the client must learn of it, whatever it is
            logger.error("%s cannot be opened", session.name, exc_info=error)
            return "internal server error; see the server log"
        return ""


def completeness(request: SessionRequest) -> Response:
    """Counts of events received, stored and dropped, nodes without files, and problems found while reading."""
    return plain_json(completeness_facts(request))


def completeness_facts(request: SessionRequest) -> dict[str, Any]:
    manifest, facts = request.open.opened.manifest, request.open.facts
    nodes = request.tables.rows(
        f"select node_id, state from {request.tables.source('nodes', request.view)} order by node_id"
    )
    ledgers = dict(
        request.tables.rows("select node_id, body::varchar from document where source = 'ledger' order by node_id")
    )
    with_files = set(request.open.files.nodes)
    return {
        "session": request.open.session.name,
        "state": request.open.state,
        "completeness": completeness_report(request).all.as_json(),
        "ended": None if request.open.ended_ns is None else facts.ended,
        "ended_ns": request.open.ended_ns,
        "end": asdict(ending(request)),
        "events": {
            "received": facts.events_received,
            "stored": facts.events_stored,
            "quarantined": facts.events_quarantined,
            "dropped_by_ray": facts.events_dropped_by_ray,
            "read": sum(manifest.events.values()),
            "by_type": manifest.events,
            "unknown_types": unknown_types(request),
        },
        "event_files": len(manifest.sources),
        "tasks_with_most_spans": facts.tasks_with_most_spans,
        "log_bytes_lost": facts.log_bytes_lost,
        "sources": sources(request),
        "unknown": unknown(request),
        "nodes": [
            {"node_id": node, "state": state, "has_ledger": node in ledgers, "has_files": node in with_files}
            for node, state in nodes
        ],
        "nodes_without_files": sorted({node for node, _ in nodes} - with_files),
        "ledgers": {node: msgspec.json.decode(body) for node, body in ledgers.items()},
        "problem_count": manifest.problem_count,
        "problems": manifest.problems,
    }


routes = [SessionRoute("/_completeness", completeness, content=json_of(OBJECT))]
