"""What one cycle did, and what it could not keep."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from ray_history.archive.errors import ArchiveError

from .dashboard_client import Misconfigured, Refused, Unreachable

EVERYTHING, ARCHIVE, TIME = "every answer", "the archive", "time"

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class PollReport:
    """What one cycle did."""

    stored: int = 0
    unchanged: int = 0
    empty: int = 0
    """Answers without content that were not stored."""
    failed: int = 0
    """No usable answer, too late, or not storable."""
    bytes: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    """What failed (an endpoint, EVERYTHING, ARCHIVE or TIME) and why; a dashboard that is not there is not told."""

    def fail(self, what: str, why: object) -> None:
        self.failed += 1
        if isinstance(why, Unreachable):
            logger.debug("%s: %s", what, why)  # not up yet, or gone: the next poll asks again
            return
        if isinstance(why, ArchiveError):
            what = ARCHIVE
        if isinstance(why, Refused | Misconfigured):
            what = EVERYTHING
        self.failures.setdefault(what, str(why))
