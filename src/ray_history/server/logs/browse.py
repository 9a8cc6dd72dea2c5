"""`/logs/`: the log directory of a node as Ray's agents show it, with an index page and its files.

An agent shows the directory of its own node. Here it is that of the head, unless `node_id` or `node_ip` names another.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from urllib.parse import quote

from starlette.responses import HTMLResponse, Response, StreamingResponse

from ray_history.archive.errors import NotFound
from ray_history.server.http.responses import ApiError
from ray_history.server.logs.listing import names_of
from ray_history.server.logs.stream import log_bytes
from ray_history.server.logs.targets import NODE_ID, NODE_IP, Target, requested_nodes
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import HTML, PLAIN_TEXT, SessionRoute


def show_logs(request: SessionRequest) -> Response:
    """The log directory of the head or of a given node: a page with the names, or one of the files."""
    name = str(request.http.path_params.get("name", "")).strip("/")
    node = _node(request)
    try:
        found = request.open.logs.find(node, name)
    except NotFound:
        start = f"{name}/" if name else ""
        below = [each.removeprefix(start) for each in names_of(request, node) if each.startswith(start)]
        if not below:
            raise
        return _index(request, name, _entries(below))
    return StreamingResponse(log_bytes(request, Target(found), lines=-1), media_type="text/plain")


def _node(request: SessionRequest) -> str:
    if request.query.get("node_id") or request.query.get("node_ip"):
        return requested_nodes(request)[0]
    nodes = request.open.logs.nodes()
    if not nodes:
        raise ApiError(404, "the archive has no logs of this session")
    rows = request.tables.rows(f"select node_id from {request.tables.source('nodes', request.view)} where is_head_node")
    return next((node for (node,) in rows if node in nodes), nodes[0])


def _entries(names: Iterable[str]) -> list[str]:
    """The entries of a folder, from the names below it, one of which is empty in an empty folder."""
    rests = (name.partition("/") for name in names)
    return sorted({first + slash for first, slash, _ in rests if first})


def _index(request: SessionRequest, folder: str, names: list[str]) -> Response:
    url = request.http.url
    here = "" if url.path.endswith("/") else quote(folder.rpartition("/")[2] or "logs") + "/"  # the links are relative
    query = f"?{url.query}" if url.query else ""
    links = "\n".join(
        f'<li><a href="{escape(f"./{here}{quote(name)}{query}")}">{escape(name)}</a></li>' for name in names
    )
    title = f"Index of /{escape(folder)}"
    return HTMLResponse(f"<!doctype html><title>{title}</title><h1>{title}</h1><ul>\n{links}\n</ul>")


routes = [
    SessionRoute("/logs/", show_logs, parameters=(NODE_ID, NODE_IP), content=PLAIN_TEXT | HTML),
    SessionRoute("/logs/{name:path}", show_logs, parameters=(NODE_ID, NODE_IP), content=PLAIN_TEXT | HTML),
]
