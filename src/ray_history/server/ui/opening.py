"""The page that a browser sees while a session is being opened: how far it is, then what was asked for.

Whoever else asks (a script, the `ray` command line) waits for the answer as before. So does a browser that looks
through a Ray: the page's own addresses lead nowhere there.
"""

from __future__ import annotations

import asyncio
import time

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ray_history.archive.catalog import Session
from ray_history.index.indexer import Progress
from ray_history.server.http.ray_proxy import is_through_ray
from ray_history.server.sessions.manager import Sessions
from ray_history.server.ui.errors import wants_page
from ray_history.server.ui.render import page

PATIENCE = 0.4
"""Seconds that a browser is left waiting before it is told to wait."""
_STEP = 0.02
_STAGES = (
    ("listing", "Find the session and its files"),
    ("reading events", "Read events"),
    ("making tables", "Make the tables"),
)
_SHORTCUT = {"fetching the index": "Fetch the index that another server made"}


class OpeningPage:
    """Stands before an endpoint of a session that people look at."""

    def __init__(self, sessions: Sessions, then: ASGIApp) -> None:
        self._sessions, self._then = sessions, then

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        session: Session = scope["ray_history.session"]
        is_watched = request.method == "GET" and wants_page(request) and not is_through_ray(scope)
        if is_watched and not await self._is_near(session):
            progress = self._sessions.status(session)
            response = page(
                request, "opening.html", session=session, progress=progress, stages=stages(progress.stage),
                percent=percent(progress),
            )  # fmt: skip
            await response(scope, receive, send)
        else:
            await self._then(scope, receive, send)

    async def _is_near(self, session: Session) -> bool:
        """Whether it is open, or could not be opened, within a moment; either way the endpoint answers at once."""
        self._sessions.start(session)
        deadline = time.monotonic() + PATIENCE
        while self._sessions.status(session).stage not in ("ready", "closed"):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_STEP)
        return True


def stages(now: str) -> list[tuple[str, str, str]]:
    """The way of an opening: key, words, and done, now or todo."""
    steps = list(_STAGES)
    if now in _SHORTCUT:
        steps[1:] = [(now, _SHORTCUT[now])]
    place = next((number for number, (key, _) in enumerate(steps) if key == now), len(steps) if now == "ready" else 0)
    return [
        (key, words, "done" if number < place else "now" if number == place else "todo")
        for number, (key, words) in enumerate(steps)
    ]


def percent(progress: Progress) -> int:
    """How far it is: reading is nearly all of the work."""
    if progress.stage == "reading events" and progress.bytes_total:
        return round(90 * progress.bytes / progress.bytes_total)
    return {"making tables": 92, "ready": 100}.get(progress.stage, 0)
