"""The `partial_failure_warning` of a listing; empty if the session is complete."""

from __future__ import annotations

from ray_history.server.completeness.report import completeness_report
from ray_history.server.completeness.sources import missing
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session


def warning(request: SessionRequest, table: str = "") -> str:
    """What was lost or could not be read, what was not stored of the sources of a table, and how old the answer is."""
    # The same at every moment, so it is computed once for the whole session.
    now = SessionRequest(request.http, request.open, request.open.view(), request.redact)
    age = request.http.scope.get("ray_history.age")
    late = f"This answer is {age}." if age else ""
    return " ".join(filter(None, (late, missing(now).get(table), *_lost(now))))


@cached_per_session
def _lost(request: SessionRequest) -> tuple[str, ...]:
    return tuple(reason.full for reason in completeness_report(request).all.reasons if reason.concerns_tables)
