"""How much a query may read and make, and how long it may take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .errors import QueryTimedOut, QueryTooLarge

MAX_STEPS = 11_000
"""Points of each series of an answer, as in Prometheus."""


@dataclass(slots=True)
class Limits:
    """The limits of one query, and what it has used."""

    max_series: int = 50_000
    """Of one selector."""
    max_samples: int = 100_000_000
    """Read by all selectors together."""
    max_cells: int = 8_000_000
    """Values of one vector: its series, each at every step."""
    is_overdue: Callable[[], bool] = field(default=lambda: False)
    samples: int = 0

    def check_time(self) -> None:
        if self.is_overdue():
            raise QueryTimedOut("the query took too long: select fewer series, a shorter range or a longer step")

    def check_series(self, count: int) -> None:
        if count > self.max_series:
            raise QueryTooLarge(f"a selector finds more than {self.max_series} series: add label matchers")

    def check_cells(self, series: int, steps: int) -> None:
        if series * steps > self.max_cells:
            raise QueryTooLarge(
                f"a vector of {series} series at {steps} steps has more than {self.max_cells} values: "
                "select fewer series, a shorter range or a longer step"
            )

    def count_samples(self, count: int) -> None:
        self.samples += count
        if self.samples > self.max_samples:
            raise QueryTooLarge(f"the query reads more than {self.max_samples} samples: select fewer series")
        self.check_time()
