"""What is told when something cannot be answered: a page to people who followed a link, JSON to programs."""

from __future__ import annotations

import difflib
import time
from dataclasses import dataclass
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ray_history.server import formatting as texts
from ray_history.server.http.responses import ApiError, ArchiveFailure, error_response
from ray_history.server.ui.render import page, site

SESSION = "ray_history.session"
"""Where the scope of a request holds the session that its address names."""


@dataclass(frozen=True, slots=True)
class _Told:
    title: str
    steps: tuple[str, ...]
    again: int = 0
    """Seconds until the page asks again by itself."""


_RELOAD = "If you followed a link from another page of this server, reload that page"
_TOLD = {
    400: _Told("This address cannot be understood", ("Correct the address as the message says", _RELOAD)),
    401: _Told("Sign in first", ("Open this page the way that your organisation signs people in", "Then try again")),
    403: _Told("You may not see this", ("Ask an owner of the namespace for access", "Or sign in as somebody else")),
    404: _Told(
        "There is nothing here",
        (
            "Search by cluster, job or entrypoint: press /",
            "If the cluster started less than 10 s ago, try again",
            "The session may have been removed by the retention rules of the archive",
        ),
    ),
    405: _Told("History cannot be changed", ("Only reading is possible here",)),
    429: _Told(
        "Too many attempts",
        ("Wait: this page tries again by itself", "Then sign in with a token that is known"),
        again=60,
    ),
    500: _Told("The server made a mistake", ("Try again", "Report it with the line below: the server's log has more")),
    502: _Told(
        "The archive refuses",
        ("Operators: check the credentials and the bucket's policy", "Sessions already opened still work"),
    ),
    503: _Told(
        "Not possible at the moment",
        ("Wait: this page tries again every 10 s", "Operators: the server's log says more"),
        again=10,
    ),
}
_ARCHIVE_SILENT = _Told(
    "The archive is not answering",
    (
        "Wait: this page tries again every 10 s",
        "Sessions already opened still work",
        "Operators: check the network, the endpoint and /metrics",
    ),
    again=10,
)


def wants_page(request: Request) -> bool:
    """Whether a person looks at the answer: a browser going somewhere, not a script fetching something."""
    mode = request.headers.get("sec-fetch-mode", "navigate")
    return mode == "navigate" and "text/html" in request.headers.get("accept", "")


async def refusal_to(request: Request, refused: ApiError) -> Response:
    """The refusal in the form that suits who asked."""
    if not wants_page(request):
        return error_response(refused)
    known = _told(refused)
    phrase = HTTPStatus(refused.status).phrase
    is_session = refused.status == 404 and "session" in request.path_params and SESSION not in request.scope
    near = await _near(request) if is_session else []
    where = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return page(
        request,
        "error.html",
        status=refused.status,
        phrase=phrase,
        title="No such session" if is_session else known.title,
        message=_as_sentence(refused.message[:2000]),
        steps=known.steps,
        again=known.again,
        near=near,
        detail=f"{refused.status} {request.method} {texts.clip(where, 300)} {texts.iso(time.time())} "
        f"req {texts.clip(request.scope.get('ray_history.request_id', ''), 64)}",
    )


def _told(refused: ApiError) -> _Told:
    if isinstance(refused, ArchiveFailure) and refused.status == 503:
        return _ARCHIVE_SILENT
    return _TOLD.get(refused.status) or _TOLD[500 if refused.status >= 500 else 400]


def _as_sentence(message: str) -> str:
    """With a capital, unless it begins with an address or a name."""
    return message[:1].upper() + message[1:] if message.partition(" ")[0].isalpha() else message


async def _near(request: Request) -> list[tuple[str, str]]:
    """Clusters with a name like the one asked for, of those that whoever asks may see, and where they are."""
    here = site(request)
    sessions = here.catalog.known().sessions
    try:
        seen = await here.seen(request.scope, {entry.cluster for entry in sessions})
    except ApiError:  # who may see what cannot be asked now: nothing is guessed
        return []
    newest = {f"{s.cluster.namespace}/{s.cluster.name}": s for s in reversed(sessions) if s.cluster in seen}
    meant = f"{request.path_params.get('namespace', '')}/{request.path_params.get('cluster', '')}"
    found = await run_in_threadpool(difflib.get_close_matches, meant[:200], newest, 3, 0.75)
    return [(name, here.session(newest[name])) for name in found]
