"""Views: which reading of a session's tables is meant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """A reading of a session's tables: the last one or that at a moment, as observed or closed."""

    at: int | None = None
    """The moment, in nanoseconds; None for the session's last."""
    closed_at: int | None = None
    """The end of the session, at which whatever was still open is shown as ended; None to show it as observed."""

    @property
    def end(self) -> int | None:
        """The end that open rows get; None if they stay open, as they do at a moment before the session's end."""
        if self.at is not None and self.closed_at is not None and self.at < self.closed_at:
            return None
        return self.closed_at


LAST = View()


def closed_rows(form: str, rows: str, view: View) -> str:
    """SQL: the rows of a table with this closed form, in parentheses."""
    if view.end is None:
        return f"(from {rows})"
    return f"(select {form.format(end=view.end)} from {rows})"
