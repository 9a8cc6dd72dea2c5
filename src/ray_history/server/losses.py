"""What is said beside a listing: `partial_failure_warning`. Of a session that is whole, nothing."""

from __future__ import annotations

from .handling import Asked
from .pages.kept import session_kept
from .pages.remembered import remembered
from .sources import unknown


def warning(asked: Asked, table: str = "") -> str:
    """That something of the session was lost, or could not be read, or that nobody kept what a table is made of."""
    now = Asked(asked.request, asked.open, asked.open.view(), asked.redact)  # the same at every moment: worked out once
    return " ".join(filter(None, (unknown(now).get(table), *_lost(now))))


@remembered
def _lost(asked: Asked) -> tuple[str, ...]:
    return tuple(reason.full for reason in session_kept(asked).all.reasons if reason.concerns_tables)
