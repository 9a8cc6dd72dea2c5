"""What the charts of a session show: the series of a panel, the values of a variable, and how far the metrics go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import duckdb
from starlette.datastructures import QueryParams
from starlette.responses import Response

from ray_history import __version__
from ray_history.metrics.grafana.charts import Chart, ChartMaker
from ray_history.metrics.grafana.dashboard import Dashboard, InvalidDashboard, Panel
from ray_history.metrics.grafana.pickers import choices
from ray_history.metrics.grafana.times import InvalidTime, TimeRange, shown_range, step, steps
from ray_history.metrics.grafana.variables import texts
from ray_history.metrics.promql.errors import PromQLError
from ray_history.metrics.promql.limits import Limits
from ray_history.metrics.promql.samples import Database
from ray_history.server.http.query_params import boolean, integer
from ray_history.server.http.responses import ApiError, plain_json
from ray_history.server.metrics.dashboards import charts, dashboard
from ray_history.server.metrics.recorded import NOT_RECORDED, Recorded, limits, moment_ms, recorded
from ray_history.server.sessions.endpoint import SessionRequest

_PIXELS_PER_POINT = 3
_NARROWEST, _WIDEST = 100, 8000


@dataclass(frozen=True, slots=True)
class Question:
    """A request about a dashboard of a session that has metrics."""

    request: SessionRequest
    recorded: Recorded
    dashboard: Dashboard

    @classmethod
    def of(cls, request: SessionRequest) -> Question:
        uid = request.path_param("uid")
        found = samples(request)
        try:
            stored = dashboard(request.open, uid)
        except InvalidDashboard as error:
            raise ApiError(422, f"the dashboard {uid[:100]!r} of this session is damaged: {error}") from error
        if stored is None:
            raise ApiError(404, f"this session has no dashboard {uid[:100]!r}")
        return cls(request, found, stored)

    @property
    def whole(self) -> TimeRange:
        return whole_range(self.request, self.recorded)

    def shown(self) -> TimeRange | None:
        """The range that is asked for; None if the session has nothing there."""
        query = self.request.query
        try:
            return shown_range(query.get("from", ""), query.get("to", ""), self.whole)
        except InvalidTime as error:
            raise ApiError(400, str(error)) from error

    def texts(self, shown: TimeRange, step_ms: int) -> Mapping[str, str]:
        return texts(self.dashboard, chosen(self.request.query), shown, step_ms, self.recorded.interval_ms)


def samples(request: SessionRequest) -> Recorded:
    """The samples of a session; refuses if it has none."""
    found = recorded(request.open)
    if found is None:
        raise ApiError(404, charts(request).missing or NOT_RECORDED)
    return found


def whole_range(request: SessionRequest, found: Recorded) -> TimeRange:
    """From the first sample to the last, or to the moment that is viewed."""
    last = moment_ms(request, found)
    return TimeRange(min(found.first_ms, last), last)


def chosen(query: QueryParams) -> dict[str, list[str]]:
    """The values of variables that an address has: `var-Instance=…`."""
    names = {name for name in query if name.startswith("var-")}
    return {name.removeprefix("var-"): query.getlist(name) for name in names}


def panel(request: SessionRequest) -> Response:
    """The series of a panel, as its chart shows them."""
    question = Question.of(request)
    number = request.path_param("panel")
    found = (
        question.dashboard.panel(int(number)) if number.isascii() and number.isdigit() and len(number) < 10 else None
    )
    if found is None:
        raise ApiError(404, f"the dashboard {question.dashboard.uid[:100]!r} has no panel {number[:20]!r}")
    width = min(max(integer(request.query, "width", 600), _NARROWEST), _WIDEST)
    may_widen = boolean(request.query, "whole", default=False)
    asked, whole = question.shown(), question.whole
    shown = asked or whole
    drawing, step_ms = _drawing(question, found, shown, width)
    if may_widen and shown != whole and not drawing.series and not drawing.problems:
        shown = whole
        drawing, step_ms = _drawing(question, found, shown, width)
    return plain_json(_panel_json(found, drawing, shown, step_ms, is_widened=shown != asked))


def _drawing(question: Question, found: Panel, shown: TimeRange, width: int) -> tuple[Chart, int]:
    step_ms = step(shown, width // _PIXELS_PER_POINT, question.recorded.interval_ms)
    of_request = limits()  # all queries of a panel together have the time of one request
    each = partial(Limits, is_overdue=of_request.is_overdue)
    maker = ChartMaker(question.recorded.reader, Patterns(question.request.tables).matching, each)
    return maker.chart(found, question.texts(shown, step_ms), steps(shown, step_ms)), step_ms


def _panel_json(found: Panel, drawing: Chart, shown: TimeRange, step_ms: int, *, is_widened: bool) -> dict[str, Any]:
    return {
        "title": found.title,
        "kind": found.kind,
        "unit": found.unit,
        "min": found.least,
        "max": found.most,
        "stacked": found.is_stacked,
        "fill": found.fill,
        "line_width": found.line_width,
        "connects_gaps": found.connects_gaps,
        "legend": found.has_legend,
        "hides_zeros": found.hides_zeros,
        "from_ms": shown.start,
        "to_ms": shown.end,
        "start_ms": int(drawing.times[0]),
        "step_ms": step_ms,
        "steps": len(drawing.times),
        "widened": is_widened,
        "series": [
            {
                "name": series.name,
                "values": series.values,
                "hidden": series.style.is_hidden,
                "dashed": series.style.is_dashed,
                "color": series.style.color,
                "stacked": series.style.is_stacked,
                "fill": series.style.fill,
            }
            for series in drawing.series
        ],
        "left_out": drawing.left_out,
        "problems": drawing.problems,
    }


def variable(request: SessionRequest) -> Response:
    """The values that a variable of a dashboard can have."""
    question, name = Question.of(request), request.path_param("variable")
    found = question.dashboard.variable(name)
    if found is None:
        raise ApiError(404, f"the dashboard {question.dashboard.uid[:100]!r} has no variable {name[:100]!r}")
    shown = question.shown() or question.whole
    patterns, reader = Patterns(request.tables), question.recorded.reader
    try:
        values = choices(
            found, question.texts(shown, step(shown, _NARROWEST)), reader, shown.end, limits(), patterns.extracting
        )
    except (PromQLError, ValueError) as error:
        raise ApiError(422, f"the values of {name[:100]} cannot be found: {error}") from error
    return plain_json({"values": values})


def available_range(request: SessionRequest) -> Response:
    """From when to when there are metrics, and whether there may be more soon."""
    whole = whole_range(request, samples(request))
    return plain_json({"from_ms": whole.start, "to_ms": whole.end, "may_grow": request.open.may_grow})


def health(_: SessionRequest) -> Response:
    """What Grafana answers to those who check whether it runs."""
    return plain_json({"database": "ok", "version": f"ray-history {__version__}"})


@dataclass(frozen=True, slots=True)
class Patterns:
    """Regular expressions of dashboards, in DuckDB: RE2 takes linear time, whatever their author wrote."""

    database: Database

    def matching(self, pattern: str, names: Sequence[str]) -> list[bool]:
        """Which names contain a match."""
        return [bool(found) for found in self._each("regexp_matches(name, ?)", pattern, names)]

    def extracting(self, pattern: str, names: Sequence[str]) -> list[str]:
        """The first group of each match, or all of it."""
        group = 1 if "(" in pattern else 0
        return [
            str(found)
            for found in self._each(f"regexp_extract(name, ?, {group})", pattern.replace("(?<", "(?P<"), names)
        ]

    def _each(self, expression: str, pattern: str, names: Sequence[str]) -> list[Any]:
        listed = "(select unnest($2::varchar[]) as name, generate_subscripts($2::varchar[], 1) as place)"
        query = f"select {expression.replace('?', '$1')} from {listed} order by place"
        try:
            return [found for (found,) in self.database.rows(query, [pattern, list(names)])]
        except (duckdb.InvalidInputException, duckdb.BinderException) as error:
            raise ValueError(f"invalid regular expression {pattern[:100]!r}: {error}") from error
