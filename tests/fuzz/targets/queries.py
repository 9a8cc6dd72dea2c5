"""What clients put into addresses and headers."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import QueryParams

from ray_history.connections import network_of
from ray_history.history.registry import TABLES
from ray_history.server.api import cursor
from ray_history.server.api.filters import conditions, parse_filters, source_conditions
from ray_history.server.auth.credentials import TrustedPeers, bearer, is_token, without_tokens
from ray_history.server.auth.origin import AllowedHosts, is_cross_site
from ray_history.server.http import query_params
from ray_history.server.http.compression import coding
from ray_history.server.http.responses import ApiError
from ray_history.server.logs.listing import Glob
from ray_history.server.ui.home.query import ORDERS, SessionQuery, parse_query, parse_search
from ray_history.server.ui.home.search import search_sessions
from tests.fuzz.target import target

_QUERIES = (
    b"limit=10&detail=1&offset=3&timeout=5",
    b"filter_keys=state&filter_predicates=%3D&filter_values=FAILED",
    b"filter_keys=attempt_number&filter_predicates=!%3D&filter_values=0",
    b"at=2026-01-31T12:00:00Z",
    b"at=1769860800000.5",
    b"q=job:train+-failed+%22a+phrase%22&state=ended&sort=-duration&range=7d&from=2026-01-31T12:00&namespace=a",
    b"sort=cluster&after=demo~-1769860800~default/demo",
    b"sort=started&after=1~-1769860800~default/demo/x",
)
_WORDS = (
    *(b"filter_keys=", b"&filter_predicates=", b"&filter_values=", b"%00", b"%ff", b"&at=", b"&limit=", b"-1", b"1e9"),
    *(b"9999-12-31T23:59:59-23:59", b"0001-01-01T00:00+23:59", b"&from=", b"&to=", b"after=", b"~", b"%E2%93%99", b"+"),
)


@contextmanager
def refusing() -> Iterator[None]:
    """What is wrong in a request is a status from 400 to 499, with a short text."""
    refusal = None
    try:
        yield
    except ApiError as error:
        refusal = error
    assert refusal is None or 400 <= refusal.status < 500
    assert len(str(refusal)) < 2000


def _query(data: bytes) -> QueryParams:
    return QueryParams(data.decode("latin-1"))


@target("query_parameters", lambda: _QUERIES, tokens=_WORDS)
def query_parameters(data: bytes) -> None:
    """A parameter is a value in its range, or refused."""
    query = _query(data)
    for name in ("limit", "offset", "timeout", "at"):
        with refusing():
            value = query_params.integer(query, name, 7, minimum=0)
            assert 0 <= value < 10**query_params.MAX_DIGITS
    with refusing():
        assert query_params.boolean(query, "detail", default=False) in (True, False)
    with refusing():
        moment = query_params.moment(query)
        assert moment is None or abs(moment) < 10**21  # DuckDB compares integers of 128 bits


@target(
    "filters",
    lambda: _QUERIES,
    tokens=(*_WORDS, *(name.encode() for table in TABLES.values() for name in table.filters)),
)
def filters(data: bytes) -> None:
    """Filters become conditions with as many values as placeholders and no text of the client, or are refused."""
    with refusing():
        found = parse_filters(_query(data))
        for table in TABLES.values():
            with refusing():
                for make in (conditions, source_conditions):
                    sql, values = make(table, found)
                    assert sql.count("?") == len(values)
                    assert all(each.key in table.filters for each in found) or make is source_conditions
                    assert all(
                        isinstance(value, int) or len(value) <= 3 * query_params.MAX_VALUE_LENGTH for value in values
                    )


@target(
    "cursors", lambda: [cursor.encode(10, b"01234567").encode(), b"", b"===", base64.urlsafe_b64encode(b"\xff" * 16)]
)
def cursors(data: bytes) -> None:
    """A token is an offset of its query, or refused; an offset's token is read again."""
    with refusing():
        offset = cursor.decode(data.decode("latin-1"), b"01234567")
        assert 0 <= offset <= cursor.OFFSET_MAX
        assert cursor.decode(cursor.encode(offset, b"01234567"), b"01234567") == offset


@target("searches", lambda: _QUERIES, tokens=_WORDS)
def searches(data: bytes) -> None:
    """The query of a list is the same after its own link; no cursor breaks the list."""
    with refusing():
        query = parse_query(_query(data))
        assert isinstance(query, SessionQuery)
        again = parse_query(QueryParams(query.link(after=query.after).removeprefix("?")))
        assert again.link() == query.link()
        assert len(parse_search(query.q)) <= 200
        for sort in ORDERS:
            with refusing():
                search_sessions([], parse_query(_query(data + b"&sort=" + sort.encode())), 1e9)
        search_sessions([], query, 1e9)


@target(
    "globs",
    lambda: [b"*", b"**/worker-*.out", b"old/**/[a-z]?.log", b"events/*\nraylet.out"],
    tokens=(b"**/", b"/", b"[!", b"]"),
)
def globs(data: bytes) -> None:
    """A pattern is refused, or matches names in linear time; `*` matches every name without a folder."""
    pattern, _, name = data.decode(errors="replace").partition("\n")
    with refusing():
        glob = Glob.parse(pattern)
        assert isinstance(glob.matches(name or "old/worker-1.out"), bool)
    plain = "".join(filter(str.isalnum, name))
    assert not plain or Glob.parse("*").matches(plain)


_HEADERS = (
    b"authorization: Bearer abc.def\ncookie: ray-history-token=xyz; a=b",
    b"x-forwarded-for: 192.0.2.1:4711, [2001:db8::1]:80, 10.0.0.7\nhost: localhost:8080",
    b"accept-encoding: gzip;q=0.5, zstd;q=1.0, *;q=0\norigin: http://localhost\nsec-fetch-site: cross-site",
    b'cookie: ray-authentication-token="a\\073b"; ;=\nx-ray-authorization: bearer  t',
)


@target(
    "headers",
    lambda: _HEADERS,
    tokens=(b"authorization: ", b"cookie: ", b"Bearer ", b"; ", b"ray-history-token=", b"%", b"::1"),
)
def headers(data: bytes) -> None:
    """Tokens, addresses and codings are found or absent; what is passed on has no token."""
    pairs = [
        (name.strip().lower(), value.strip())
        for name, colon, value in (line.partition(b":") for line in data.split(b"\n"))
        if colon
    ]
    token = bearer(pairs)
    assert token is None or isinstance(is_token(token), bool)
    assert not bearer(without_tokens(pairs))
    scope = {"type": "http", "headers": pairs, "client": ("10.1.2.3", 1)}
    credentials = TrustedPeers.parse("10.0.0.0/8,::1").credentials(scope)
    assert len(credentials.peer) <= 64
    network_of(credentials.peer)
    for _, value in pairs:
        text = value.decode("latin-1")
        assert coding(text) in ("", "gzip", "zstd")
        assert not AllowedHosts.local().allow(f"{text.strip('.')}.example")
    is_cross_site(scope)


@target("links", lambda: [b"q=a+b&namespace=x&failed=1", b"from=2026-01-31T12:00:00%2B01:00"], tokens=_WORDS)
def links(data: bytes) -> None:
    """A link of a list has only what its query says."""
    with refusing():
        query = parse_query(_query(data))
        assert dict(parse_qsl(query.link().removeprefix("?"))).keys() <= {
            name for name, _ in parse_qsl(data.decode("latin-1"))
        }
        urlencode(parse_qsl(query.link()))
