"""`/prometheus/federate`: the last value of series as text, which another Prometheus can scrape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from starlette.responses import Response

from ray_history.metrics.exposition import NAME_LABEL, sample_line
from ray_history.metrics.promql.errors import BadQuery
from ray_history.metrics.promql.matchers import Selection
from ray_history.metrics.promql.samples import LOOKBACK
from ray_history.server.metrics.answers import number
from ray_history.server.metrics.prometheus import Question, answering
from ray_history.server.metrics.recorded import limits

_TEXT = "text/plain; version=0.0.4; charset=utf-8"


@answering
def federate(question: Question) -> Response:
    """The last values of the series that `match[]` selects, with the times of their scrapes."""
    selections = question.selections()
    if not selections:
        raise BadQuery("no match[] parameter provided")
    lines = {line for matches in selections for line in _lines(question, matches)}
    body, name = [], ""
    for of_name, line in sorted(lines):
        if of_name != name:
            name = of_name
            body.append(f"# TYPE {name} untyped\n")
        body.append(line)
    return Response("".join(body), media_type=_TEXT)


def _lines(question: Question, matches: Selection) -> Iterator[tuple[str, str]]:
    """The name and the line of each series that has a value now."""
    now, reader, of_request = question.now_ms, question.recorded.reader, limits()
    shown = {_identity(labels) for labels in reader.latest(matches, np.array([now]), of_request).labels}
    for found in reader.between(matches, now - LOOKBACK + 1, now, of_request):
        if _identity(found.labels) in shown:
            labels = dict(found.labels)
            name = labels.pop(NAME_LABEL)
            yield name, sample_line(name, labels, number(float(found.values[-1])), int(found.times[-1]))


def _identity(labels: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())
