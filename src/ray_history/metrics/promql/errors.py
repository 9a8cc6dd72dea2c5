"""Errors of a query, with the names that Prometheus' API gives them.

PromQLError
├── BadQuery         the query cannot be parsed, or asks for something that does not exist
├── QueryFailed      it cannot be evaluated on these series
├── QueryTooLarge    it would read or make more than a limit allows
└── QueryTimedOut    it took too long
"""

from __future__ import annotations

from typing import ClassVar


class PromQLError(Exception):
    """A query has no answer."""

    error_type: ClassVar[str] = "execution"
    status: ClassVar[int] = 422


class BadQuery(PromQLError):
    error_type = "bad_data"
    status = 400


class QueryFailed(PromQLError):
    pass


class QueryTooLarge(PromQLError):
    pass


class QueryTimedOut(PromQLError):
    error_type = "timeout"
    status = 503
