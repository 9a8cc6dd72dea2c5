"""Rendering: `page(request, "home.html", …)` is an answer with one of our pages.

Everything put into a page is escaped, and a name that a template does not know is an error. The pages run under a
policy that lets nothing be loaded from elsewhere and no script or style stand in the page itself.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.types import Scope

from ray_history.archive.catalog import Session
from ray_history.archive.layout import Cluster
from ray_history.server import formatting as texts
from ray_history.server.auth import is_let_in, shown_name
from ray_history.server.sessions.addressing import SessionCatalog
from ray_history.server.ui import assets as static

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
THEMES = ("auto", "light", "dark")

_environment = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_environment.filters |= texts.FILTERS


async def _all(_: Scope, clusters: AbstractSet[Cluster]) -> AbstractSet[Cluster]:
    return clusters


@dataclass(frozen=True, slots=True)
class Site:
    """What every page knows; it stands in `app.state.site`."""

    base_path: str
    store: str
    """The archive's address, as shown."""
    catalog: SessionCatalog
    seen: Callable[[Scope, AbstractSet[Cluster]], Awaitable[AbstractSet[Cluster]]] = field(default=_all, repr=False)
    """Which of the clusters exist for whoever asks; pages show nothing of the others."""
    signs_out: bool = False
    """Whether people sign in, and out, here."""

    def link(self, path: str) -> str:
        """A path of this server as a browser asks for it."""
        return self.base_path + path

    def static(self, name: str) -> str:
        """The address of a file of our pages."""
        return self.base_path + static.address(name)

    def session(self, session: Session, rest: str = "") -> str:
        """The address of something of a session."""
        names = (session.cluster.namespace, session.cluster.name, session.name)
        return f"{self.base_path}/s/{'/'.join(quote(name, safe='') for name in names)}/{rest}"


def site(request: Request) -> Site:
    found: Site = request.app.state.site
    return found


def theme(request: Request) -> str:
    """`?theme=`, as in the Ray Dashboard, else the cookie that the button sets; `auto` follows the system."""
    for chosen in (request.query_params.get("theme"), request.cookies.get("theme")):
        if chosen in THEMES:
            return chosen
    return "auto"


def render(request: Request, template: str, **values: Any) -> str:
    """The text of a page, or of a part of one."""
    known: dict[str, Any] = {
        "site": site(request),
        "theme": theme(request),
        "now": time.time(),
        "is_let_in": is_let_in(request.scope),
        "user": shown_name(request.scope),
        "q": "",
    }
    return _environment.get_template(template).render(known | values)


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """An answer with a page."""
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store", "Vary": "Cookie"}
    return HTMLResponse(render(request, template, status=status, **values), status, headers)
