"""Parses queries."""

from __future__ import annotations

import re
from datetime import timedelta

import promql_parser

from .errors import BadQuery

MAX_LENGTH = 64 << 10
_LONGEST_MESSAGE = 1000
"""The parser quotes the query."""
MAX_OPERATIONS = 1000
"""Brackets and operators, each of which may be nested in another one. The parser has no limit: from 4,000 on it uses up
the stack, which ends the process."""

# A text without its end goes on to the end of the query, or the search for it would begin at each of its quotes.
_QUOTED = r"""(?:"(?:[^"\\]|\\.?)*+(?:"|\Z)|'(?:[^'\\]|\\.?)*+(?:'|\Z)|`[^`]*+(?:`|\Z))"""
_OPERATION = re.compile(rf"{_QUOTED}|([(\[*/%^+-]|[=!<>]=?|\b(?:and|or|unless|atan2)\b)", re.DOTALL | re.IGNORECASE)
_QUOTED_OR_SURPLUS_COMMA = re.compile(
    rf"({_QUOTED})"  # texts stay as they are
    r"""
    |([{(])\s*(?:,\s*)+                                 # a comma after an opening brace
    |,(?:\s*,)+                                         # one of several commas
    """,
    re.VERBOSE | re.DOTALL,
)


def parse(query: str) -> promql_parser.Expr:
    """Parse a query; raises `BadQuery`.

    Dashboards of Ray 2.49 to 2.56 have commas without a label between them, which Prometheus refuses: they are ignored.
    """
    if len(query) > MAX_LENGTH:
        raise BadQuery(f"the query has {len(query)} characters: at most {MAX_LENGTH} are accepted")
    if sum(1 for found in _OPERATION.finditer(query) if found[1]) > MAX_OPERATIONS:
        raise BadQuery(f"the query has more than {MAX_OPERATIONS} brackets and operators")
    try:
        return promql_parser.parse(_without_surplus_commas(query))
    except ValueError as error:
        raise BadQuery(f'invalid parameter "query": {str(error)[:_LONGEST_MESSAGE]}') from error


def _without_surplus_commas(query: str) -> str:
    return _QUOTED_OR_SURPLUS_COMMA.sub(lambda found: found[1] or found[2] or ",", query)


def milliseconds(duration: timedelta | None) -> int:
    return 0 if duration is None else round(duration / timedelta(milliseconds=1))
