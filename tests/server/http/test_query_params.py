"""Typed query parameters: accepted forms, defaults, and the messages of refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from starlette.datastructures import QueryParams

from ray_history.server.http.query_params import Filter, boolean, filters, integer, moment, one_of
from ray_history.server.http.responses import ApiError


def refusal(parse: Callable[[], object]) -> str:
    with pytest.raises(ApiError) as caught:
        parse()
    assert caught.value.status == 400
    return caught.value.message


@pytest.mark.parametrize(
    ("query", "value"),
    [("", 100), ("limit=", 100), ("limit=7", 7), ("limit=+7", 7), ("limit=-7", -7), ("limit=%20007", 7)],
)
def test_integers(query: str, value: int) -> None:
    assert integer(QueryParams(query), "limit", 100) == value


def test_an_integer_may_have_leading_zeros_but_at_most_18_digits() -> None:
    assert integer(QueryParams("limit=" + "0" * 500 + "9" * 18), "limit", 0) == 10**18 - 1
    message = refusal(lambda: integer(QueryParams("limit=" + "9" * 19), "limit", 0))
    assert message == "invalid limit: 19 digits, expected at most 18"


@pytest.mark.parametrize("text", ["x", "1e3", "1.0", "0x10", "--1", "1 2", "\N{ARABIC-INDIC DIGIT ONE}"])
def test_anything_else_is_not_an_integer(text: str) -> None:
    message = refusal(lambda: integer(QueryParams({"limit": text}), "limit", 0))
    assert message == f"invalid limit {text!r}: expected an integer"


def test_an_integer_below_the_minimum_is_refused() -> None:
    assert integer(QueryParams("limit=0"), "limit", 5, minimum=0) == 0
    message = refusal(lambda: integer(QueryParams("limit=-1"), "limit", 5, minimum=0))
    assert message == "invalid limit -1: expected at least 0"


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("True", True), ("YES", True), ("t", True), ("0", False), ("false", False), ("No", False)],
)
def test_booleans(text: str, value: bool) -> None:
    assert boolean(QueryParams({"detail": text}), "detail", default=not value) is value


def test_a_missing_boolean_has_its_default_and_other_words_are_refused() -> None:
    assert boolean(QueryParams("detail="), "detail", default=True) is True
    message = refusal(lambda: boolean(QueryParams("detail=maybe"), "detail", default=True))
    assert message == "invalid detail 'maybe': expected true or false"


def test_one_of_several_words() -> None:
    assert one_of(QueryParams(""), "order", ("asc", "desc"), "asc") == "asc"
    assert one_of(QueryParams("order=desc"), "order", ("asc", "desc"), "asc") == "desc"
    message = refusal(lambda: one_of(QueryParams("order=up"), "order", ("asc", "desc"), "asc"))
    assert message == "invalid order 'up': expected one of asc, desc"


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("", None),
        ("1700000000", 1_700_000_000_000_000_000),
        ("1700000000.5", 1_700_000_000_500_000_000),
        ("1700000000500", 1_700_000_000_500_000_000),
        ("1700000000500000", 1_700_000_000_500_000_000),
        ("1700000000500000000", 1_700_000_000_500_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000_000_000),
        ("2023-11-14T22:13:20.5", 1_700_000_000_500_000_000),
        ("2023-11-15T00:13:20 02:00", 1_700_000_000_000_000_000),
    ],
)
def test_moments(text: str, nanoseconds: int | None) -> None:
    assert moment(QueryParams({"at": text})) == nanoseconds


@pytest.mark.parametrize("text", ["yesterday", "1.2.3", "-5", "2023-13-01", "9" * 20])
def test_other_moments_are_refused(text: str) -> None:
    message = refusal(lambda: moment(QueryParams({"at": text})))
    assert message.startswith(f"invalid at {text!r}: expected 2026-01-31T12:00:00Z or")


def filter_query(*triples: tuple[str, str, str]) -> QueryParams:
    names = ("filter_keys", "filter_predicates", "filter_values")
    return QueryParams([(name, part) for triple in triples for name, part in zip(names, triple, strict=True)])


def test_filters() -> None:
    query = filter_query(("Name", "=", "f"), ("state", "!=", ""))
    assert filters(query, {"name": "func_or_class_name"}) == [
        Filter("func_or_class_name", "=", "f"),
        Filter("state", "!=", ""),
    ]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (QueryParams("filter_keys=a&filter_values=b"), "1 filter_keys, 0 filter_predicates and 1 filter_values"),
        (filter_query(*[("a", "=", "b")] * 21), "too many filters: 21 of at most 20"),
        (filter_query(("a", "~", "b")), "Unsupported filter predicate '~'"),
        (filter_query(("a", "=", "x" * 4097)), "filter 'a': values may have at most 4096 characters, not 4097"),
    ],
)
def test_invalid_filters_are_refused(query: QueryParams, message: str) -> None:
    assert message in refusal(lambda: filters(query, {}))
