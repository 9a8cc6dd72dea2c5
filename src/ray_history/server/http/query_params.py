"""Typed query parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from starlette.datastructures import QueryParams

from ray_history.server.http.responses import ApiError

_TRUE, _FALSE = frozenset({"1", "t", "true", "yes"}), frozenset({"0", "f", "false", "no"})
_INTEGER = re.compile(r"[+-]?0*(?P<digits>[0-9]+)")
MAX_DIGITS = 18
"""Fits into every integer column."""


def integer(query: QueryParams, name: str, default: int, *, minimum: int | None = None) -> int:
    text = query.get(name, "").strip()
    if not text:
        return default
    found = _INTEGER.fullmatch(text)
    if not found:
        raise ApiError(400, f"invalid {name} {text[:40]!r}: expected an integer")
    if len(found["digits"]) > MAX_DIGITS:
        raise ApiError(400, f"invalid {name}: {len(found['digits'])} digits, expected at most {MAX_DIGITS}")
    value = int(text)
    if minimum is not None and value < minimum:
        raise ApiError(400, f"invalid {name} {value}: expected at least {minimum}")
    return value


def boolean(query: QueryParams, name: str, *, default: bool) -> bool:
    text = query.get(name, "")
    if not text:
        return default
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ApiError(400, f"invalid {name} {text[:40]!r}: expected true or false")


def one_of(query: QueryParams, name: str, choices: tuple[str, ...], default: str) -> str:
    text = query.get(name) or default
    if text not in choices:
        raise ApiError(400, f"invalid {name} {text[:40]!r}: expected one of {', '.join(choices)}")
    return text


def moment(query: QueryParams) -> int | None:
    """`at=` in nanoseconds since 1970, from ISO 8601 or a number of seconds, milliseconds, micro- or nanoseconds."""
    text = query.get("at", "").strip()
    if not text:
        return None
    if re.fullmatch(r"[0-9]{1,19}([.][0-9]+)?", text):
        number = float(text) if "." in text else int(text)
        for size, factor in ((10**11, 10**9), (10**14, 10**6), (10**17, 10**3)):
            if number < size:
                return int(number * factor)
        return int(number)
    try:
        parsed = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError:
        raise ApiError(
            400, f"invalid at {text[:40]!r}: expected 2026-01-31T12:00:00Z or milliseconds since 1970"
        ) from None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return round(parsed.timestamp() * 1000) * 10**6


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition of a listing."""

    key: str
    predicate: str
    value: str


MAX_FILTERS = 20
MAX_VALUE_LENGTH = 4096


def filters(query: QueryParams, aliases: Mapping[str, str]) -> list[Filter]:
    """The filters that Ray's clients send as `filter_keys`, `filter_predicates` and `filter_values`."""
    keys, predicates, values = (query.getlist(name) for name in ("filter_keys", "filter_predicates", "filter_values"))
    if not len(keys) == len(predicates) == len(values):
        raise ApiError(
            400,
            f"{len(keys)} filter_keys, {len(predicates)} filter_predicates and {len(values)} filter_values; "
            "each filter needs one of each",
        )
    if len(keys) > MAX_FILTERS:
        raise ApiError(400, f"too many filters: {len(keys)} of at most {MAX_FILTERS}")
    found = []
    for key, predicate, value in zip(keys, predicates, values, strict=True):
        if predicate not in ("=", "!="):
            raise ApiError(
                400, f"Unsupported filter predicate {predicate[:20]!r} is given. Available predicates: =, !=."
            )
        if len(value) > MAX_VALUE_LENGTH:
            raise ApiError(
                400, f"filter {key[:40]!r}: values may have at most {MAX_VALUE_LENGTH} characters, not {len(value)}"
            )
        found.append(Filter(aliases.get(key.lower(), key.lower()), predicate, value))
    return found
