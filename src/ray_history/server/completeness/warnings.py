"""What is said beside a listing: `partial_failure_warning`. Of a session that is whole, nothing."""

from __future__ import annotations

from ray_history.server.completeness.report import completeness_report
from ray_history.server.completeness.sources import unknown
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session


def warning(request: SessionRequest, table: str = "") -> str:
    """That something of the session was lost, or could not be read, or that nobody kept what a table is made of."""
    now = SessionRequest(
        request.http, request.open, request.open.view(), request.redact
    )  # the same at every moment: worked out once
    return " ".join(filter(None, (unknown(now).get(table), *_lost(now))))


@cached_per_session
def _lost(request: SessionRequest) -> tuple[str, ...]:
    return tuple(reason.full for reason in completeness_report(request).all.reasons if reason.concerns_tables)
