"""Paging by cursor."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.server.api.cursor import OFFSET_MAX, Page, decode, encode
from ray_history.server.http.responses import ApiError

HASH, OTHER_HASH = b"12345678", b"87654321"


@given(st.integers(0, OFFSET_MAX), st.binary(min_size=8, max_size=8))
def test_a_token_decodes_to_its_offset(offset: int, query_hash: bytes) -> None:
    assert decode(encode(offset, query_hash), query_hash) == offset


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "nonsense",
        "not base64!",
        "ünicode",
        encode(0, OTHER_HASH),
        encode(0, HASH)[:-1],
        encode(0, HASH) + "AAAA",
        encode(0, b""),
        encode(OFFSET_MAX + 1, HASH),
        base64.urlsafe_b64encode(HASH).decode(),
    ],
)
def test_other_tokens_are_refused_with_what_to_do(token: str) -> None:
    with pytest.raises(ApiError) as refused:
        decode(token, HASH)
    assert refused.value.status == 400
    assert "start again with an empty cursor=" in refused.value.message


@pytest.mark.parametrize(
    ("offset", "limit", "rows", "following"),
    [
        (0, 10, 25, 10),
        (10, 10, 25, 20),
        (20, 10, 25, None),
        (0, 25, 25, None),
        (0, 24, 25, 24),
        (0, 10, 0, None),
        (30, 10, 25, None),
        (0, 0, 25, None),
    ],
)
def test_every_page_but_the_last_has_a_next_one(offset: int, limit: int, rows: int, following: int | None) -> None:
    token = Page(offset, HASH).next_token(limit, rows)
    assert (token if token is None else decode(token, HASH)) == following
