"""Rendering of pages, and the static files they refer to.

Everything inserted into a page is escaped, and an undefined name in a template is an error. The content security policy
allows no inline scripts or styles and nothing from other hosts.
"""

from __future__ import annotations

import hashlib
import mimetypes
import time
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from ray_history.archive.catalog import Session
from ray_history.archive.layout import Cluster
from ray_history.server import formatting
from ray_history.server.auth import display_name, is_authenticated
from ray_history.server.http.responses import ApiError
from ray_history.server.sessions.addressing import SessionCatalog

THEMES = ("auto", "light", "dark")

_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_environment.filters |= formatting.FILTERS
_environment.globals["plural"] = formatting.plural

STATIC_PREFIX = "/_pages"


def _read_static_files() -> dict[str, tuple[str, bytes]]:
    """Static files by name, each with its address: the hash of its content is part of it, so browsers cache forever."""
    files = {}
    here = Path(__file__).parent
    for path in sorted([*(here / "static").iterdir(), *(here / "vendored").glob("*/*.[cj]s*")]):
        body = path.read_bytes()
        files[path.name] = f"{path.stem}.{hashlib.blake2b(body, digest_size=6).hexdigest()}{path.suffix}", body
    return files


_STATIC_FILES = _read_static_files()
_BODIES = dict(_STATIC_FILES.values())


async def static_file(request: Request) -> Response:
    """`/_pages/style.0123456789ab.css`"""
    name = request.path_params["name"]
    body = _BODIES.get(name)
    if body is None:
        raise ApiError(404, "no such file: reload the page to get its current files")
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(body, media_type=media_type, headers={"Cache-Control": "public, max-age=31536000, immutable"})


async def _all(_: Scope, clusters: AbstractSet[Cluster]) -> AbstractSet[Cluster]:
    return clusters


@dataclass(frozen=True, slots=True)
class Site:
    """What every page needs from the application, in `app.state.site`."""

    base_path: str
    store: str
    """The URL of the archive."""
    catalog: SessionCatalog
    visible: Callable[[Scope, AbstractSet[Cluster]], Awaitable[AbstractSet[Cluster]]] = field(default=_all, repr=False)
    """Filters clusters down to those that the viewer may see."""
    signs_out: bool = False
    """Whether users sign in with a token here, and therefore can sign out."""

    def link(self, path: str) -> str:
        """The address of a path of this server."""
        return self.base_path + path

    def static(self, name: str) -> str:
        """The address of a static file."""
        return f"{self.base_path}{STATIC_PREFIX}/{_STATIC_FILES[name][0]}"

    def session(self, session: Session, rest: str = "") -> str:
        """The address of a path below a session."""
        names = (session.cluster.namespace, session.cluster.name, session.name)
        return f"{self.base_path}/s/{'/'.join(quote(name, safe='') for name in names)}/{rest}"


def site(request: Request) -> Site:
    found: Site = request.app.state.site
    return found


def theme(request: Request) -> str:
    """The theme from `?theme=`, as in the Ray Dashboard, or from the cookie; `auto` follows the system."""
    for choice in (request.query_params.get("theme"), request.cookies.get("theme")):
        if choice in THEMES:
            return choice
    return "auto"


def render(request: Request, template: str, **values: Any) -> str:
    """Render a page, or a part of one."""
    context: dict[str, Any] = {
        "site": site(request),
        "theme": theme(request),
        "now": time.time(),
        "is_let_in": is_authenticated(request.scope),
        "user": display_name(request.scope),
        "q": "",
    }
    return _environment.get_template(template).render(context | values)


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Answer with a page."""
    headers = {"Cache-Control": "no-store", "Vary": "Cookie"}
    return HTMLResponse(render(request, template, status=status, **values), status, headers)
