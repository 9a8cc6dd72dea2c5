"""Answers in the form of Prometheus' API."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import numpy as np
from starlette.responses import Response

from ray_history.metrics.promql.errors import PromQLError
from ray_history.metrics.promql.evaluate import Value
from ray_history.metrics.promql.vector import Row, Times, Vector
from ray_history.server.http.responses import JSON, plain_json

_LARGEST_PLAIN, _SMALLEST_PLAIN = 1e21, 1e-6
"""Between these, numbers have no exponent, as in JavaScript."""


def success(data: object) -> Response:
    return plain_json({"status": "success", "data": data})


def failure(kind: str, message: str, status: int) -> Response:
    return plain_json({"status": "error", "errorType": kind, "error": message}, status=status)


def refusal(error: PromQLError) -> Response:
    return failure(error.error_type, str(error), error.status)


def instant(value: Value, times: Times) -> Response:
    """The answer to `query`."""
    moment = _moment(int(times[0]))
    if isinstance(value, str):
        return _result("string", f"[{moment},{_text(value)}]")
    if not isinstance(value, Vector):
        return _result("scalar", f'[{moment},"{_scalar(float(value[0]))}"]')
    rows = (
        f'{{"metric":{_metric(row)},"value":[{moment},"{number(float(row.values[0]))}"]}}'
        for row in value.rows()
        if row.present[0]
    )
    return _result("vector", f"[{','.join(rows)}]")


def matrix(vector: Vector, times: Times) -> Response:
    """The answer to `query_range`."""
    moments = [_moment(time) for time in times.tolist()]
    rows = (
        f'{{"metric":{_metric(row)},"values":[{",".join(_points(row, moments))}]}}'
        for row in vector.rows()
        if row.present.any()
    )
    return _result("matrix", f"[{','.join(rows)}]")


def _points(row: Row, moments: list[str]) -> Iterator[str]:
    values = row.values.tolist()
    return (f'[{moments[step]},"{number(values[step])}"]' for step in np.flatnonzero(row.present).tolist())


def _result(kind: str, text: str) -> Response:
    body = f'{{"status":"success","data":{{"resultType":"{kind}","result":{text}}}}}'
    return Response(body, media_type=JSON)


def _metric(row: Row) -> str:
    return _text(dict(sorted(row.labels.items())))


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _moment(time_ms: int) -> str:
    seconds, rest = divmod(time_ms, 1000)
    return f"{seconds}.{rest:03}" if rest else str(seconds)


def _scalar(value: float) -> str:
    """A number that is no sample never has an exponent."""
    return np.format_float_positional(value, trim="-") if math.isfinite(value) else number(value)


def number(value: float) -> str:
    """A value as Prometheus writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value)) if value or math.copysign(1, value) > 0 else "-0"
    text = repr(value)
    if "e" not in text:
        return text
    if _SMALLEST_PLAIN <= abs(value) < _LARGEST_PLAIN:
        return np.format_float_positional(value, trim="-")
    return text
