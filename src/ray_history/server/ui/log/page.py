"""`_log`: a log file of any size in a page, beside the other stream of its worker, with links to each line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.responses import HTMLResponse, Response

from ray_history.archive.log_files import LogFile
from ray_history.server.http.query_params import boolean, integer
from ray_history.server.http.responses import ApiError
from ray_history.server.logs.line_numbers import MOST_BLOCKS, line_numbers
from ray_history.server.logs.targets import TARGET_PARAMETERS, Target, requested_target
from ray_history.server.logs.views import LogView, log_view
from ray_history.server.logs.windows import Window
from ray_history.server.logs.worker_files import other_stream
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.node_names import node_names
from ray_history.server.sessions.routes import FLAG, HTML, NUMBER, Parameter, SessionRoute
from ray_history.server.ui.log.lines import ShownLine, shown
from ray_history.server.ui.render import page, render, site

_PLACES = ("line", "from", "before")


@dataclass(frozen=True, slots=True)
class Pane:
    """One log of the page."""

    view: LogView
    window: Window
    lines: tuple[ShownLine, ...]
    target: Mapping[str, str]
    """The parameters that select the log."""
    is_growing: bool

    @property
    def stream(self) -> str:
        """`stdout` or `stderr` of a worker; empty for other files."""
        return {"out": "stdout", "err": "stderr"}.get(self.view.file.name.rpartition(".")[2], "")

    @property
    def errors(self) -> int:
        return sum(line.level == "error" for line in self.lines)

    @property
    def query(self) -> str:
        return urlencode(self.target)

    @property
    def raw(self) -> str:
        """The address of the whole text, below that of the session."""
        return "api/v0/logs/file?" + urlencode({**self.target, "lines": -1, "inline": 1})

    @property
    def download(self) -> str:
        name = self.view.file.name.rpartition("/")[2]
        return "api/v0/logs/file?" + urlencode({**self.target, "lines": -1, "download_filename": name})

    def at(self, **place: int) -> str:
        """The address of the page at a place of this log."""
        return "_log?" + urlencode({**self.target, **place})


def log_page(request: SessionRequest) -> Response:
    """A log file, or the part of it that a task wrote, with line numbers; `#L12` is the address of a line."""
    target = requested_target(request)
    selected = {each.name: request.query[each.name] for each in TARGET_PARAMETERS if each.name in request.query}
    pane = _pane(request, target, selected, has_place=True)
    of_site = site(request.http)
    if boolean(request.query, "part", default=False):
        return HTMLResponse(render(request.http, "log_lines.html", pane=pane), headers={"Cache-Control": "no-store"})
    other = other_stream(request.open.logs, target.file)
    panes = [pane]
    if other is not None and boolean(request.query, "side", default=False):
        panes.append(_pane(request, Target(other), _named(other), has_place=False))
        panes.sort(key=lambda each: each.stream, reverse=True)
    return page(
        request.http,
        "log.html",
        session=request.open.session,
        link=lambda rest: of_site.session(request.open.session, rest),
        pane=pane,
        panes=panes,
        other=_Other(other, _named(other)) if other is not None else None,
        node=node_names(request).get(target.file.node, target.file.node[:8]),
        side=len(panes) > 1,
    )


@dataclass(frozen=True, slots=True)
class _Other:
    """The other stream of the worker."""

    file: LogFile
    target: Mapping[str, str]

    @property
    def query(self) -> str:
        return urlencode(self.target)


def _named(file: LogFile) -> dict[str, str]:
    return {"node_id": file.node, "filename": file.name}


def _pane(request: SessionRequest, target: Target, selected: Mapping[str, str], *, has_place: bool) -> Pane:
    view = log_view(request, target)
    window = _window(request, view) if has_place else view.windows.last()
    first = line_numbers(request.open, view.file).at(view.reader, window.start) if window.lines else None
    lines = tuple(shown(line, None if first is None else first + n) for n, line in enumerate(window.lines))
    return Pane(view, window, lines, selected, target.grows and request.open.ended_ns is None)


def _window(request: SessionRequest, view: LogView) -> Window:
    """The window at the place that is asked for; without one, the end of the log, or the begin of a task's part."""
    query, windows = request.query, view.windows
    places = [name for name in _PLACES if query.get(name)]
    if not places:
        return windows.after(windows.low) if windows.low else windows.last()
    if len(places) > 1:
        raise ApiError(400, f"{' and '.join(places)} exclude each other: give one place")
    place = integer(query, places[0], 0, minimum=0)
    if places[0] == "from":
        return windows.after(place)
    if places[0] == "before":
        return windows.before(place)
    start = line_numbers(request.open, view.file).offset_of(view.reader, max(place, 1))
    if start is None:
        raise ApiError(
            503,
            f"line {place} is more than {MOST_BLOCKS * 4} MiB behind the lines that have been counted so far: "
            "request it again, or choose a place with from= (a byte)",
        )
    return windows.around(start)


def _parameters() -> Iterator[Parameter]:
    yield from TARGET_PARAMETERS
    yield Parameter("line", NUMBER, "Show the lines around this one.")
    yield Parameter("from", NUMBER, "Show the lines from the one at this byte on.")
    yield Parameter("before", NUMBER, "Show the lines before this byte.")
    yield Parameter("side", FLAG, "Show both streams of a worker.")
    yield Parameter("part", FLAG, "Only the lines, to be added to a page.")


routes = [SessionRoute("/_log", log_page, parameters=tuple(_parameters()), content=HTML)]
