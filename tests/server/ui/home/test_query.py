"""The query of a list: parsed from an address, and written into links."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from ray_history.archive.catalog import Session
from ray_history.archive.layout import Cluster
from ray_history.index.summary import Job
from ray_history.server.http.responses import ApiError
from ray_history.server.ui.home.query import STATES, SessionQuery, Term, hidden_match, parse_query, parse_search
from ray_history.server.ui.home.rows import Row

TRAINING = Row(
    Session(Cluster("ns", "cluster-1"), "session_1", 1_794_800_000),
    "ended",
    None,
    job=Job("01000000", "", "python train.py", "FAILED", "", None, None),
    fields={"cluster": "cluster-1", "namespace": "ns", "job": "python train.py", "error": "keyerror: x"},
    lines=("python train.py (a)", "boom: KeyError: 'x' in a long line"),
)


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("", ()),
        ("train", (Term("train"),)),
        ("Train -GPU", (Term("train"), Term("gpu", excluded=True))),
        ('"two words" x', (Term("two words"), Term("x"))),
        ('error:"key error" -job:etl', (Term("key error", "error"), Term("etl", "job", True))),
        ("s3://bucket/x", (Term("s3://bucket/x"),)),
        ("foo:bar", (Term("foo:bar"),)),
        ('"open', (Term("open"),)),
        ("-", (Term("-"),)),
        ('""', ()),
    ],
)
def test_a_search_has_words_phrases_exclusions_and_fields(search: str, expected: tuple[Term, ...]) -> None:
    assert parse_search(search) == expected


@pytest.mark.parametrize(
    ("term", "matches"),
    [
        (Term("train"), True),
        (Term("train", "job"), True),
        (Term("train", "error"), False),
        (Term("train", excluded=True), False),
        (Term("gpu", excluded=True), True),
        (Term("x", "session"), False),
    ],
)
def test_a_term_matches_one_field_or_any(term: Term, matches: bool) -> None:
    assert term.matches(TRAINING) is matches


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("keyerror", ("boom: ", "KeyError", ": 'x' in a long line")),
        ("train.py", None),
        ("-keyerror", None),
        ("absent", None),
    ],
)
def test_a_match_that_the_row_does_not_show_is_found_in_its_lines(
    search: str, expected: tuple[str, str, str] | None
) -> None:
    assert hidden_match(TRAINING, parse_search(search)) == expected


def test_a_hidden_match_far_from_the_beginning_is_cut_in_front() -> None:
    row = Row(TRAINING.session, "ended", None, lines=("x" * 100 + "needle",))
    found = hidden_match(row, parse_search("needle"))
    assert found == ("…" + "x" * 40, "needle", "")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("", SessionQuery()),
        ("state=unknown", SessionQuery(state="unknown")),
        ("q=+a+b+&state=live", SessionQuery(q="a b", state="live")),
        ("namespace=a&namespace=b&namespace=a&namespace=", SessionQuery(namespaces=("a", "b"))),
        ("owner=RayJob&ray=2.60.0", SessionQuery(owners=("RayJob",), rays=("2.60.0",))),
        ("failed=1&complete=0&range=7d", SessionQuery(failed=True, incomplete=True, range="7d")),
        ("complete=1&failed=0", SessionQuery()),
        ("from=2026-01-31T12:00&to=2026-01-31T12:00+01:00", SessionQuery(begin=1_769_860_800.0, end=1_769_857_200.0)),
        ("sort=-duration&after=x~y", SessionQuery(sort="-duration", after="x~y")),
    ],
)
def test_parameters_are_read_from_the_address(address: str, expected: SessionQuery) -> None:
    assert parse_query(QueryParams(address)) == expected


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("state=dead", "all, live, ended, lost"),
        ("sort=color", "started, duration"),
        ("range=2y", "1h, 24h"),
        ("failed=maybe", "true or false"),
        ("from=yesterday", "such as 2026-01-31T12:00"),
        ("to=99999-01-01", "such as 2026-01-31T12:00"),
        ("q=" + "x" * 201, "at most 200"),
        ("&".join(f"ray={n}" for n in range(51)), "at most 50"),
    ],
)
def test_invalid_parameters_are_refused(address: str, message: str) -> None:
    with pytest.raises(ApiError, match=message) as refused:
        parse_query(QueryParams(address))
    assert refused.value.status == 400


def test_a_link_changes_one_filter_and_starts_at_the_first_page() -> None:
    query = SessionQuery(q="x", sort="duration", namespaces=("data",), after="1~a")
    assert query.link(state="ended") == "?q=x&state=ended&sort=duration&namespace=data"
    assert query.link(after="2~b") == "?q=x&sort=duration&namespace=data&after=2~b"
    assert SessionQuery().link() == "?"


@pytest.mark.parametrize(
    ("query", "is_filtered"),
    [(SessionQuery(), False), (SessionQuery(sort="tasks", after="x"), False), (SessionQuery(failed=True), True)],
)
def test_order_and_page_are_no_filters(query: SessionQuery, is_filtered: bool) -> None:
    assert query.is_filtered is is_filtered


queries = st.builds(
    SessionQuery,
    q=st.text(st.characters(codec="utf-8"), max_size=50).map(str.strip),
    state=st.sampled_from(STATES),
    namespaces=st.lists(st.text("abc<>&\"' +%", min_size=1, max_size=5), unique=True, max_size=3).map(tuple),
    rays=st.lists(st.text("2.60", min_size=1, max_size=5), unique=True, max_size=3).map(tuple),
    failed=st.booleans(),
    incomplete=st.booleans(),
    range=st.sampled_from(["1h", "24h", "all"]),
    begin=st.none() | st.integers(0, 2**32).map(float),
    end=st.none() | st.integers(0, 2**32).map(float),
    sort=st.sampled_from(["started", "-started", "cluster"]),
)


@given(queries)
def test_a_link_leads_to_the_same_query(query: SessionQuery) -> None:
    assert parse_query(QueryParams(parse_qsl(query.link()[1:]))) == query
