"""The API of Prometheus below a session: queries over its recorded metrics, for Grafana, `promtool` and scripts.

`now` is the last scrape of the session, or the moment `at=`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps

import numpy as np
from promql_parser import VectorSelector
from starlette.datastructures import QueryParams
from starlette.responses import Response

from ray_history.metrics.promql.errors import BadQuery, PromQLError
from ray_history.metrics.promql.evaluate import evaluate
from ray_history.metrics.promql.limits import MAX_STEPS
from ray_history.metrics.promql.matchers import Selection, selection
from ray_history.metrics.promql.operators import filled
from ray_history.metrics.promql.samples import Series
from ray_history.metrics.promql.syntax import parse
from ray_history.metrics.promql.vector import Times, Vector, stacked
from ray_history.server.metrics.answers import failure, instant, matrix, refusal, success
from ray_history.server.metrics.recorded import NOT_RECORDED, Recorded, limits, moment_ms, recorded
from ray_history.server.sessions.endpoint import Handler, SessionRequest

_DURATION = re.compile("".join(f"(?:([0-9]{{1,15}}){unit})?" for unit in ("y", "w", "d", "h", "m", "s", "ms")))
_UNITS_MS = (31_536_000_000, 604_800_000, 86_400_000, 3_600_000, 60_000, 1_000, 1)
_VERSION = "2.42.0"
"""Clients look at it to learn what the API supports."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request to the API, of a session that has metrics."""

    request: SessionRequest
    recorded: Recorded

    @property
    def query(self) -> QueryParams:
        return self.request.query

    @property
    def now_ms(self) -> int:
        return moment_ms(self.request, self.recorded)

    def required(self, name: str) -> str:
        text = self.query.get(name, "")
        if not text:
            raise BadQuery(f'invalid parameter "{name}": it is missing')
        return text

    def time_ms(self, name: str, default: int | None = None) -> int:
        if default is not None and not self.query.get(name):
            return default
        return _time_ms(name, self.required(name))

    def selections(self) -> list[Selection]:
        return [_selection(text) for text in self.query.getlist("match[]")]

    def series(self) -> list[Series]:
        """The series that any of `match[]` selects."""
        found = {
            series.number: series
            for matches in self.selections()
            for series in self.recorded.reader.select(matches, limits())
        }
        return [found[number] for number in sorted(found)]


def _time_ms(name: str, text: str) -> int:
    """Seconds since 1970, or RFC 3339."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = _rfc3339(name, text)
    if not abs(seconds) < 1e11:
        raise BadQuery(f'invalid parameter "{name}": {text[:40]} is out of range')
    return round(seconds * 1000)


def _rfc3339(name: str, text: str) -> float:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise BadQuery(f'invalid parameter "{name}": cannot parse {text[:40]!r} to a valid timestamp') from None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def _step_ms(text: str) -> int:
    """Seconds, or a duration such as `1m30s`."""
    try:
        step = float(text) * 1000
    except ValueError:
        found = _DURATION.fullmatch(text)
        if found is None or not text:
            raise BadQuery(f'invalid parameter "step": cannot parse {text[:40]!r} to a valid duration') from None
        step = sum(int(part or 0) * unit for part, unit in zip(found.groups(), _UNITS_MS, strict=True))
    if not 1 <= step < 1e14:
        raise BadQuery(
            'invalid parameter "step": zero or negative query resolution step widths are not accepted. '
            "Try a positive integer"
        )
    return round(step)


def _selection(text: str) -> Selection:
    selector = parse(text)
    if not isinstance(selector, VectorSelector):
        raise BadQuery(f'invalid parameter "match[]": {text[:200]!r} is no selector of series')
    return selection(selector)


def answering(answer: Callable[[Question], Response]) -> Handler:
    """A handler that refuses as Prometheus does."""

    @wraps(answer)
    def handler(request: SessionRequest) -> Response:
        found = recorded(request.open)
        if found is None:
            return failure("not_found", NOT_RECORDED, 404)
        try:
            return answer(Question(request, found))
        except PromQLError as error:
            return refusal(error)

    return handler


@answering
def query(question: Question) -> Response:
    """The value of a PromQL query at one moment."""
    times: Times = np.array([question.time_ms("time", question.now_ms)], np.int64)
    value = evaluate(question.recorded.reader, question.required("query"), times, limits())
    return instant(value, times)


@answering
def query_range(question: Question) -> Response:
    """The values of a PromQL query over a range of time."""
    start, end = question.time_ms("start"), question.time_ms("end")
    step = _step_ms(question.required("step"))
    if end < start:
        raise BadQuery('invalid parameter "end": end timestamp must not be before start time')
    if (end - start) // step >= MAX_STEPS:
        raise BadQuery(
            f"exceeded maximum resolution of {MAX_STEPS:,} points per timeseries. "
            "Try decreasing the query resolution (?step=XX)"
        )
    times: Times = np.arange(start, end + 1, step, dtype=np.int64)
    value = evaluate(question.recorded.reader, question.required("query"), times, limits())
    if isinstance(value, str):
        raise BadQuery('invalid expression type "string" for range query, must be Scalar or instant Vector')
    return matrix(value if isinstance(value, Vector) else stacked(filled(value), len(times)), times)


@answering
def labels(question: Question) -> Response:
    """The names of all labels, or of those of the series that `match[]` selects."""
    if question.query.getlist("match[]"):
        return success(sorted({label for series in question.series() for label in series.labels}))
    return success(question.recorded.reader.label_names())


@answering
def label_values(question: Question) -> Response:
    """The values of a label."""
    label = question.request.path_param("label")
    if question.query.getlist("match[]"):
        return success(sorted({series.labels[label] for series in question.series() if label in series.labels}))
    return success(question.recorded.reader.label_values(label))


@answering
def series(question: Question) -> Response:
    """The labels of the series that `match[]` selects."""
    if not question.query.getlist("match[]"):
        raise BadQuery("no match[] parameter provided")
    return success([dict(sorted(each.labels.items())) for each in question.series()])


@answering
def metadata(_: Question) -> Response:
    """Types and descriptions of metrics: none are recorded."""
    return success({})


@answering
def build_info(_: Question) -> Response:
    """The version of Prometheus whose API this is."""
    facts = {"version": _VERSION, "revision": "", "branch": "", "buildUser": "", "buildDate": "", "goVersion": ""}
    return success({**facts, "application": "ray-history"})
