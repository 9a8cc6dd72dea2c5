"""Search in one log: which lines contain a text."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec
from starlette.responses import Response

from ray_history.server.http.query_params import boolean, integer
from ray_history.server.http.responses import ApiError, plain_json
from ray_history.server.logs.line_numbers import line_numbers
from ray_history.server.logs.targets import TARGET_PARAMETERS, requested_target
from ray_history.server.logs.views import log_view
from ray_history.server.logs.windows import LogWindows
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.routes import (
    FLAG,
    NUMBER,
    TEXT,
    Parameter,
    SessionRoute,
    array_of,
    json_of,
    object_with,
)

MOST_MATCHES = 1_000
SECONDS = 5.0
"""After that, an answer says up to which byte it has searched, and the next request goes on from there."""
_MAX_TEXT = 1_000


@dataclass(frozen=True, slots=True)
class Match:
    """A line with the text."""

    start: int
    """The offset of the line."""
    line: int | None
    """Its number, if that is known."""


def search_log(request: SessionRequest) -> Response:
    """The lines of a log that contain a text. `next` is where to go on, null at the end of the log."""
    text = request.query.get("q", "")
    if not text or len(text) > _MAX_TEXT or "\n" in text:
        raise ApiError(400, f"invalid q: expected a text of 1 to {_MAX_TEXT} characters in one line")
    is_exact = boolean(request.query, "case", default=False)
    target = requested_target(request)
    view = log_view(request, target)
    start = max(integer(request.query, "from", 0, minimum=0), view.windows.low)
    wanted = text.encode() if is_exact else text.lower().encode()
    found, next_start = _search(view.windows, start, wanted, is_exact=is_exact)
    numbers = line_numbers(request.open, view.file)
    matches = [Match(each, numbers.at(view.reader, each)) for each in found]
    return plain_json(
        {
            "matches": msgspec.to_builtins(matches),
            "next": next_start,
            "searched": [start, view.windows.high if next_start is None else next_start],
        }
    )


def _search(windows: LogWindows, start: int, wanted: bytes, *, is_exact: bool) -> tuple[list[int], int | None]:
    """The offsets of lines, and where to go on."""
    deadline, found, place = time.monotonic() + SECONDS, list[int](), start
    while place < windows.high:
        if time.monotonic() > deadline:
            return found, place
        window = windows.after(place)
        for line in window.lines:
            if line.start >= start and wanted in (line.text if is_exact else line.text.lower()):
                if len(found) == MOST_MATCHES:
                    return found, line.start
                found.append(line.start)
        if window.end <= place:
            break
        place = window.end
    return found, None


_MATCH = object_with({"start": NUMBER, "line": {"type": ["integer", "null"]}})
_ANSWER = object_with(
    {"matches": array_of(_MATCH), "next": {"type": ["integer", "null"]}, "searched": array_of(NUMBER)}
)

routes = [
    SessionRoute(
        "/_log/search",
        search_log,
        parameters=(
            *TARGET_PARAMETERS,
            Parameter("q", TEXT, "The text that lines must contain."),
            Parameter("case", FLAG, "Distinguish upper and lower case."),
            Parameter("from", NUMBER, "Search from the line at this byte on."),
        ),
        content=json_of(_ANSWER),
    )
]
