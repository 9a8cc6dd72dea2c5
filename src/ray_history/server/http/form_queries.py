"""Queries that come in the body of a POST, as Grafana and `promtool` send them to the API of Prometheus."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from .responses import ApiError, error_response

_PATHS = re.compile(r"/prometheus/api/v1/(query|query_range|labels|series)/?$")
_FORM = b"application/x-www-form-urlencoded"
MAX_FORM = 16 << 10


class FormQueries:
    """Turns such a request into a GET with the form as its query, so that everything behind it only reads."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not _is_form_query(scope):
            await self._app(scope, receive, send)
            return
        form = await _body(receive)
        if form is None:
            refused = ApiError(413, f"the form is larger than {MAX_FORM >> 10} KiB")
            await error_response(refused)(scope, receive, send)
            return
        query = b"&".join(filter(None, (scope["query_string"], form)))
        await self._app({**scope, "method": "GET", "query_string": query}, receive, send)


def _is_form_query(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] != "POST" or not _PATHS.search(scope["path"]):
        return False
    media_type = dict(scope["headers"]).get(b"content-type", b"")
    return bool(media_type.partition(b";")[0].strip().lower() == _FORM)


async def _body(receive: Receive) -> bytes | None:
    """The body; None if it is too large, or does not come whole."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += bytes(message.get("body", b""))
        if len(body) > MAX_FORM:
            return None
        if not message.get("more_body"):
            return body
