"""The progress page that a browser gets while a session is being opened.

Other clients wait for their answer. So does a browser whose requests come through the dashboard of a Ray cluster
(`ray start --head --proxy-server-url`), where the addresses of this page do not exist.
"""

from __future__ import annotations

import asyncio
import time

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from ray_history.archive.catalog import Session
from ray_history.index.build.order import Progress
from ray_history.server.http.ray_proxy import is_through_ray
from ray_history.server.sessions.manager import Sessions
from ray_history.server.ui.errors import wants_page
from ray_history.server.ui.render import page

PATIENCE = 0.4
"""Seconds that a browser waits before it gets the progress page."""
_STEP = 0.02
_STAGES = (
    ("listing", "List the files of the session"),
    ("reading events", "Read events"),
    ("making tables", "Build tables"),
)
_FETCHING = "fetching the index", "Fetch the index that another server built"


class OpeningPage:
    """Wraps the endpoint of a page: answers with the progress page while the session is being opened."""

    def __init__(self, sessions: Sessions, endpoint: ASGIApp) -> None:
        self._sessions, self._endpoint = sessions, endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        session: Session = scope["ray_history.session"]
        is_browser = request.method == "GET" and wants_page(request) and not is_through_ray(scope)
        if is_browser and not await self._opens_soon(session):
            progress = self._sessions.status(session)
            response = page(
                request, "opening.html", session=session, progress=progress, stages=stages(progress.stage),
                percent=percent(progress),
            )  # fmt: skip
            await response(scope, receive, send)
        else:
            await self._endpoint(scope, receive, send)

    async def _opens_soon(self, session: Session) -> bool:
        """Whether the session is open, or failed to open, within `PATIENCE`; the endpoint then answers at once."""
        self._sessions.start(session)
        deadline = time.monotonic() + PATIENCE
        while self._sessions.status(session).stage not in ("ready", "closed"):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_STEP)
        return True


def stages(current: str) -> list[tuple[str, str, str]]:
    """The stages of an opening: key, text, and done, now or todo."""
    steps = list(_STAGES)
    if current == _FETCHING[0]:
        steps[1:] = [_FETCHING]
    last = len(steps) if current == "ready" else 0
    place = next((number for number, (key, _) in enumerate(steps) if key == current), last)
    return [
        (key, text, "done" if number < place else "now" if number == place else "todo")
        for number, (key, text) in enumerate(steps)
    ]


def percent(progress: Progress) -> int:
    """The progress of an opening; most of the work is reading events."""
    if progress.stage == "reading events" and progress.bytes_total:
        return round(90 * progress.bytes / progress.bytes_total)
    return {"making tables": 92, "ready": 100}.get(progress.stage, 0)
