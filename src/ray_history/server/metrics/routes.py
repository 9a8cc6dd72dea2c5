"""The routes of recorded metrics."""

from __future__ import annotations

from importlib import import_module

from starlette.responses import Response

from ray_history.server.sessions.endpoint import Handler, SessionRequest
from ray_history.server.sessions.routes import (
    FLAG,
    NUMBER,
    PLAIN_TEXT,
    TEXT,
    VIEW,
    Parameter,
    Schema,
    SessionRoute,
    array_of,
    json_of,
    object_with,
)

_MATCH = Parameter("match[]", TEXT, "A selector of series; may be repeated.")
_QUERY = Parameter("query", TEXT, "A query in PromQL.")
_START = Parameter("start", TEXT, "The first moment: seconds since 1970, or RFC 3339.")
_END = Parameter("end", TEXT, "The last moment.")
_STEP = Parameter("step", TEXT, "The distance between two moments: seconds, or a duration such as `1m`.")
_TIME = Parameter("time", TEXT, "The moment; by default the last scrape, or the moment `at`.")
_ANSWER = json_of(object_with({"status": {"const": "success"}, "data": {}}))
_REFUSAL = object_with({"status": {"const": "error"}, "errorType": TEXT, "error": TEXT})


def _handler(module: str, name: str) -> Handler:
    """A handler that is imported on first use: NumPy takes 0.1 s that many servers never need."""

    def handler(request: SessionRequest) -> Response:
        handlers = import_module(f"ray_history.server.metrics.{module}")
        response: Response = getattr(handlers, name)(request)
        return response

    return handler


def _route(path: str, name: str, summary: str, *parameters: Parameter) -> SessionRoute:
    path = f"/prometheus/api/v1/{path}"
    return SessionRoute(
        path,
        _handler("prometheus", name),
        summary=summary,
        parameters=parameters,
        content=_ANSWER,
        own_refusal=_REFUSAL,
    )


_FROM = Parameter("from", TEXT, "The first moment: `now-5m`, milliseconds since 1970, or ISO 8601.")
_TO = Parameter("to", TEXT, "The last moment; `now` is the last scrape, or the moment `at`.")
_VARIABLE = Parameter("var-NAME", TEXT, "The value of the variable NAME; may be repeated.")
_DECIMAL: Schema = {"type": "number"}
_NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
_SERIES = object_with(
    {
        "name": TEXT,
        "values": array_of(_NUMBER_OR_NULL),
        **dict.fromkeys(("hidden", "dashed", "stacked"), FLAG),
        "color": {"type": ["string", "null"]},
        "fill": _NUMBER_OR_NULL,
    }
)
_PANEL = object_with(
    {
        **dict.fromkeys(("title", "kind", "unit"), TEXT),
        **dict.fromkeys(("min", "max"), _NUMBER_OR_NULL),
        **dict.fromkeys(("fill", "line_width"), _DECIMAL),
        **dict.fromkeys(("stacked", "connects_gaps", "legend", "hides_zeros", "widened"), FLAG),
        **dict.fromkeys(("from_ms", "to_ms", "start_ms", "step_ms", "steps", "left_out"), NUMBER),
        "series": array_of(_SERIES),
        "problems": array_of(TEXT),
    }
)


def _chart_route(path: str, name: str, content: Schema, *parameters: Parameter, summary: str) -> SessionRoute:
    handler = _handler("panels", name)
    return SessionRoute(
        f"/grafana/api/{path}", handler, summary=summary, parameters=parameters, content=json_of(content)
    )


routes = (
    _route("query", "query", "The value of a PromQL query at one moment.", _QUERY, _TIME, *VIEW),
    _route(
        "query_range", "query_range", "The values of a PromQL query over a range of time.", _QUERY, _START, _END, _STEP
    ),
    _route("labels", "labels", "The names of all labels, or of those of the selected series.", _MATCH),
    _route("label/{label}/values", "label_values", "The values of a label.", _MATCH),
    _route("series", "series", "The labels of the selected series.", _MATCH),
    _route("metadata", "metadata", "Types and descriptions of metrics: none are recorded."),
    _route("status/buildinfo", "build_info", "The version of Prometheus whose API this is."),
    SessionRoute(
        "/prometheus/federate",
        _handler("federation", "federate"),
        summary="The last values of the selected series, for another Prometheus to scrape.",
        parameters=(_MATCH, VIEW[0]),
        content=PLAIN_TEXT,
        own_refusal=_REFUSAL,
    ),
    _chart_route(
        "dashboards/{uid}/panels/{panel}",
        "panel",
        _PANEL,
        *(_FROM, _TO, _VARIABLE, *VIEW),
        Parameter("width", NUMBER, "The width of the chart in pixels."),
        Parameter("whole", FLAG, "Show the whole session if the panel has no series in the range."),
        summary="The series of a panel, as its chart shows them.",
    ),
    _chart_route(
        "dashboards/{uid}/variables/{variable}",
        "variable",
        object_with({"values": array_of(TEXT)}),
        *(_FROM, _TO, _VARIABLE, *VIEW),
        summary="The values that a variable of a dashboard can have.",
    ),
    _chart_route(
        "range",
        "available_range",
        object_with({"from_ms": NUMBER, "to_ms": NUMBER, "may_grow": FLAG}),
        *VIEW,
        summary="From when to when there are metrics, and whether there may be more soon.",
    ),
    _chart_route(
        "health",
        "health",
        object_with({"database": TEXT, "version": TEXT}),
        summary="What Grafana answers to those who check whether it runs.",
    ),
)
