"""The memory of a node just before something went wrong there, in words."""

from __future__ import annotations

from dataclasses import replace

from ray_history.metrics.table_names import METRICS
from ray_history.server.formatting import duration
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.node_names import node_names
from ray_history.server.ui.session.headline import Headline


def memory_then(request: SessionRequest, node_id: str | None, moment_ns: int, *, only_high: bool = False) -> str:
    """How full the memory of a node was, as `97 % on worker 2, 8 s before`; empty if that is not known, or not high."""
    if not node_id or request.tables.file(METRICS) is None:
        return ""
    # It imports NumPy, which takes 0.1 s: most sessions have no metrics.
    from ray_history.server.metrics.node_memory import memory_before

    memory = memory_before(request.open, node_id, moment_ns)
    if memory is None or (only_high and not memory.is_high):
        return ""
    name = node_names(request).get(node_id, node_id[:8])
    before = f", {duration(memory.seconds_before)} before" if memory.seconds_before >= 1 else " then"
    return f"{memory.share * 100:.0f} % on {name}{before}"


def with_memory(request: SessionRequest, headline: Headline | None) -> Headline | None:
    """The headline, which says so if the memory of its node was nearly full just before."""
    if headline is None or headline.node_id is None or headline.at_ns is None:
        return headline
    memory = memory_then(request, headline.node_id, headline.at_ns, only_high=True)
    return replace(headline, text=f"Memory was at {memory}. {headline.text}".strip()) if memory else headline
