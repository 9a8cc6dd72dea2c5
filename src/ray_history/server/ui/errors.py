"""Errors as pages for people who follow a link, and as JSON for programs."""

from __future__ import annotations

import difflib
import time
from dataclasses import dataclass
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from ray_history.server import formatting
from ray_history.server.auth import is_authenticated
from ray_history.server.http.responses import ApiError, ArchiveFailure, error_response
from ray_history.server.ui.render import page, site


@dataclass(frozen=True, slots=True)
class Advice:
    """The title of an error page, and what to do."""

    title: str
    steps: tuple[str, ...]
    retry_seconds: int = 0
    """Seconds after which the page reloads; 0 for never."""


_ADVICE = {
    400: Advice(
        "Bad request",
        (
            "Correct the address as the message says",
            "If you followed a link from another page of this server, reload that page",
        ),
    ),
    401: Advice("Sign in first", ("Sign in the way your organisation provides for this server", "Then try again")),
    403: Advice("Access denied", ("Ask an owner of the namespace for access", "Or sign in as another user")),
    404: Advice(
        "Page not found",
        (
            "Search by cluster, job or entrypoint: press /",
            "If the cluster started less than 10 s ago, try again",
            "The session may have been deleted by the retention rules of the archive",
        ),
    ),
    405: Advice("History is read-only", ("Use GET requests",)),
    429: Advice(
        "Too many attempts",
        ("Wait: this page reloads automatically", "Then sign in with a valid token"),
        retry_seconds=60,
    ),
    500: Advice("Internal error", ("Try again", "Report the line below; the log of the server has the details")),
    502: Advice(
        "The archive denied access",
        ("Operators: check the credentials and the bucket policy", "Sessions that are already open keep working"),
    ),
    503: Advice(
        "Temporarily unavailable",
        ("Wait: this page reloads every 10 s", "Operators: see the log of the server"),
        retry_seconds=10,
    ),
}
_ARCHIVE_UNREACHABLE = Advice(
    "The archive is not responding",
    (
        "Wait: this page reloads every 10 s",
        "Sessions that are already open keep working",
        "Operators: check the network, the endpoint and /metrics",
    ),
    retry_seconds=10,
)


def wants_page(request: Request) -> bool:
    """Whether the request is a browser's navigation, and not a script's or a program's request."""
    mode = request.headers.get("sec-fetch-mode", "navigate")
    return mode == "navigate" and "text/html" in request.headers.get("accept", "")


async def render_error(request: Request, error: ApiError) -> Response:
    """The error as a page or as JSON, whichever the client expects."""
    if not wants_page(request):
        return error_response(error)
    advice = _advice(error)
    is_missing_session = (
        error.status == 404
        and is_authenticated(request.scope)
        and "session" in request.path_params
        and "ray_history.session" not in request.scope
    )
    address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return page(
        request,
        "error.html",
        status=error.status,
        phrase=HTTPStatus(error.status).phrase,
        title="No such session" if is_missing_session else advice.title,
        message=_capitalize(error.message[:2000]),
        steps=advice.steps,
        retry_seconds=advice.retry_seconds,
        similar=await _similar_clusters(request) if is_missing_session else [],
        detail=f"{error.status} {request.method} {formatting.clip(address, 300)} {formatting.iso(time.time())} "
        f"req {formatting.clip(request.scope.get('ray_history.request_id', ''), 64)}",
    )


def _advice(error: ApiError) -> Advice:
    if isinstance(error, ArchiveFailure) and error.status == 503:
        return _ARCHIVE_UNREACHABLE
    return _ADVICE.get(error.status) or _ADVICE[500 if error.status >= 500 else 400]


def _capitalize(message: str) -> str:
    """Capitalize a message, unless it begins with an address or a parameter's name."""
    return message[:1].upper() + message[1:] if message.partition(" ")[0].isalpha() else message


async def _similar_clusters(request: Request) -> list[tuple[str, str]]:
    """Names and addresses of clusters that the viewer may see and whose names resemble the requested one."""
    of_site = site(request)
    sessions = of_site.catalog.cached().sessions
    try:
        visible = await of_site.visible(request.scope, {entry.cluster for entry in sessions})
    except ApiError:  # the viewer's access cannot be checked now, so nothing is suggested
        return []
    newest = {f"{s.cluster.namespace}/{s.cluster.name}": s for s in reversed(sessions) if s.cluster in visible}
    requested = f"{request.path_params.get('namespace', '')}/{request.path_params.get('cluster', '')}"
    names = await run_in_threadpool(difflib.get_close_matches, requested[:200], newest, 3, 0.75)
    return [(name, of_site.session(newest[name])) for name in names]
