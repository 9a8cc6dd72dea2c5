"""`/api/jobs/{id}/logs/tail`, which `ray job logs --follow` reads: the log of a finished job, and its end."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError
from ray_history.server.http.responses import ApiError
from ray_history.server.logs.routes import job_log
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.manager import Sessions

_POLICY_VIOLATION = 1008


class JobTail:
    """Sends the log of a job's driver over a web socket."""

    def __init__(self, sessions: Sessions, *, redact: bool) -> None:
        self._sessions, self._redact = sessions, redact

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        session: Session = scope["ray_history.session"]
        opened = await self._sessions.acquire(session)
        try:
            request = SessionRequest(
                Request({**scope, "type": "http", "method": "GET"}), opened, opened.view(), self._redact
            )
            pieces = await run_in_threadpool(job_log, request)
            await socket.accept()
            async for text in iterate_in_threadpool(_texts(pieces)):
                await socket.send_text(text)
            await socket.close()
        except (ApiError, ArchiveError) as error:
            await socket.close(_POLICY_VIOLATION, str(error)[:100])
        except WebSocketDisconnect:
            return
        finally:
            self._sessions.release(opened)


def _texts(pieces: Iterator[bytes]) -> Iterator[str]:
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    for piece in pieces:
        if text := decode(piece):
            yield text
    if rest := decode(b"", final=True):
        yield rest
