"""Scores as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .counts import Counts
from .score import Score

WIDTH = 110


def lines(score: Score, most: int = 60) -> Iterator[str]:
    """The score, its routes, and the unequal leaves by place with an example."""
    equal, total = score.leaves
    apart = sum(result.rows_apart for result in score.results)
    yield f"mean of routes   {score.mean_of_routes:8.2%}"
    yield f"mean of answers  {score.mean_of_answers:8.2%} of {len(score.scored)}"
    yield f"leaves           {equal / total:8.2%}, {equal:,} of {total:,}"
    yield f"set apart: {apart:,} rows; {sum(result.drifting for result in score.results):,} leaves that drifted"
    yield ""
    for name, ratio in score.by_route().items():
        yield f"{ratio:8.2%}  {name}"
    yield ""
    yield "Not scored, because the live answer was no 200: live, ours, URL"
    for result in score.results:
        if result.live != 200:
            yield f"{result.live:5} {result.ours:5}  {result.url[:WIDTH]}"
    yield ""
    yield "Unequal leaves, route, place: live | ours"
    for count, route, difference in score.differences()[:most]:
        yield f"{count:7,}  {route}  {difference.path}: {_short(difference.live)} | {_short(difference.ours)}"


def count_lines(counts: Counts) -> Iterator[str]:
    yield f"events: {counts.archived:,} of {counts.acknowledged:,} acknowledged archived, {counts.invented:,} others"
    yield (
        f"logs: {counts.whole_log_files:,} of {counts.log_files:,} files whole, "
        f"{counts.log_bytes - counts.stored_log_bytes:,} of {counts.log_bytes:,} bytes lost"
    )
    yield from (f"  {text}" for text in counts.worst)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return repr(text if len(text) <= WIDTH else f"{text[:WIDTH]}…")
