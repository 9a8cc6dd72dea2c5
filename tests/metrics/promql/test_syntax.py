"""Queries that are hard to parse are refused: they come from everybody who may see a session."""

from __future__ import annotations

from contextlib import suppress

import pytest

from ray_history.metrics.promql.errors import BadQuery
from ray_history.metrics.promql.syntax import parse
from tests.fuzz.growth import assert_linear


@pytest.mark.parametrize(
    "query", ["(" * 20_000 + "1" + ")" * 20_000, "1" + "+1" * 20_000, "sum(" * 9_000 + "a" + ")" * 9_000]
)
def test_a_deeply_nested_query_does_not_end_the_process(query: str) -> None:
    with pytest.raises(BadQuery, match="more than 1000 brackets and operators"):
        parse(query)


def test_texts_do_not_count() -> None:
    parse('a{b="' + "(" * 5_000 + '", c=`' + "+" * 5_000 + "`}")
    parse(" or ".join(f'a{{b="{number}"}}' for number in range(300)))


@pytest.mark.parametrize("part", ['\\"', "\\'", '"a', "( ", ", ", "`"])
def test_texts_without_an_end_are_searched_once(part: str) -> None:
    def refuse(data: bytes) -> None:
        with suppress(BadQuery):
            parse(data[: 64 << 10].decode())

    assert_linear(refuse, lambda size: part.encode() * (size // len(part)))
