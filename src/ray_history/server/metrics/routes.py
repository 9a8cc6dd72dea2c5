"""The routes of recorded metrics."""

from __future__ import annotations

from importlib import import_module

from starlette.responses import Response

from ray_history.server.sessions.endpoint import Handler, SessionRequest
from ray_history.server.sessions.routes import TEXT, VIEW, Parameter, SessionRoute, json_of, object_with

_MATCH = Parameter("match[]", TEXT, "A selector of series; may be repeated.")
_QUERY = Parameter("query", TEXT, "A query in PromQL.")
_START = Parameter("start", TEXT, "The first moment: seconds since 1970, or RFC 3339.")
_END = Parameter("end", TEXT, "The last moment.")
_STEP = Parameter("step", TEXT, "The distance between two moments: seconds, or a duration such as `1m`.")
_TIME = Parameter("time", TEXT, "The moment; by default the last scrape, or the moment `at`.")
_ANSWER = json_of(object_with({"status": {"const": "success"}, "data": {}}))
_REFUSAL = object_with({"status": {"const": "error"}, "errorType": TEXT, "error": TEXT})


def _handler(name: str) -> Handler:
    """A handler in `prometheus.py`, which is imported on first use: NumPy takes 0.1 s that many servers never need."""

    def handler(request: SessionRequest) -> Response:
        handlers = import_module("ray_history.server.metrics.prometheus")
        response: Response = getattr(handlers, name)(request)
        return response

    return handler


def _route(path: str, name: str, summary: str, *parameters: Parameter) -> SessionRoute:
    path = f"/prometheus/api/v1/{path}"
    return SessionRoute(
        path, _handler(name), summary=summary, parameters=parameters, content=_ANSWER, own_refusal=_REFUSAL
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
)
