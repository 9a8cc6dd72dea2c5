"""How full the memory of a node was just before a moment, such as a failure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ray_history.metrics.promql.matchers import Match
from ray_history.metrics.promql.samples import Samples
from ray_history.metrics.table_names import BLOCKS
from ray_history.server.metrics.recorded import limits, recorded
from ray_history.server.sessions.open_session import OpenSession

HIGH = 0.9
"""From this share on, memory is worth a mention: Ray kills workers from 95 % on, by default, and samples are up to 15 s
old by then."""
WINDOW_MS = 60_000
"""Older samples say nothing about the moment. Of a node that is lost there are none in the last seconds, because Ray
notices it after some failed health checks."""

_USED, _TOTAL = "ray_node_mem_used", "ray_node_mem_total"


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """A sample of a node's memory."""

    share: float
    """Used, of the total."""
    seconds_before: float

    @property
    def is_high(self) -> bool:
        return self.share >= HIGH


def memory_before(session: OpenSession, node_id: str, moment_ns: int) -> NodeMemory | None:
    """The last sample before the moment; None if there is none within the window."""
    found, blocks = recorded(session), session.tables.file(BLOCKS)
    if found is None or blocks is None:
        return None
    moment = moment_ns // 1_000_000
    instances = session.tables.rows(
        f"""
        select distinct target from {blocks}
        where node_id = ? and endpoint = 'agent' and last_ms >= ? and first_ms <= ?
        """,
        [node_id, moment - WINDOW_MS, moment],
    )
    name = Match("__name__", "Re", f"{_USED}|{_TOTAL}")
    latest: NodeMemory | None = None
    for (instance,) in instances:
        selection = name, Match("instance", "Equal", instance)
        samples = list(found.reader.between(selection, moment - WINDOW_MS, moment, limits()))
        each = _last(samples, moment)
        if each is not None and (latest is None or each.seconds_before < latest.seconds_before):
            latest = each
    return latest


def _last(samples: list[Samples], moment: int) -> NodeMemory | None:
    """The last scrape that shows both metrics."""
    by_name = {each.labels["__name__"]: each for each in samples}
    if _USED not in by_name or _TOTAL not in by_name:
        return None
    used, total = by_name[_USED], by_name[_TOTAL]
    times, of_used, of_total = np.intersect1d(used.times, total.times, return_indices=True)
    if not len(times) or not total.values[of_total[-1]] > 0:
        return None
    share = float(used.values[of_used[-1]] / total.values[of_total[-1]])
    return NodeMemory(share, (moment - int(times[-1])) / 1000) if 0 <= share <= 2 else None
