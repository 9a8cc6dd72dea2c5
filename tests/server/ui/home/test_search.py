"""What a list of sessions is asked for, and what it then holds."""

from __future__ import annotations

import random
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from ray_history.archive.catalog import Session
from ray_history.archive.layout import Cluster
from ray_history.index.summary import Job
from ray_history.server.completeness.assessment import Assessment, Reason
from ray_history.server.formatting import iso
from ray_history.server.http.responses import ApiError
from ray_history.server.ui.home.query import ORDERS, SessionQuery, Term, hidden_match, parse_query, parse_search
from ray_history.server.ui.home.rows import Row
from ray_history.server.ui.home.search import PAGE, search_sessions

NOW = 1_794_800_000.0


def row(
    number: int = 0, *, state: str = "ended", namespace: str = "ns", started: float = NOW - 3600, **more: object
) -> Row:
    fields = {"cluster": f"cluster-{number}", "namespace": namespace, "job": "python train.py", "error": "keyerror: x"}
    return Row(
        Session(Cluster(namespace, f"cluster-{number}"), f"session_{number}", int(started)),
        state,
        started + 60,
        **{"is_indexed": True, "fields": fields, **more},  # type: ignore[arg-type]
    )


def asked(query: str) -> SessionQuery:
    return parse_query(QueryParams(query))


def names(rows: list[Row], query: str) -> list[str]:
    return [found.session.cluster.name for found in search_sessions(rows, asked(query), NOW).rows]


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
    ],
)
def test_a_search_is_words_phrases_exclusions_and_places(search: str, expected: tuple[Term, ...]) -> None:
    assert parse_search(search) == expected


@given(st.text(max_size=200))
def test_any_search_can_be_asked(search: str) -> None:
    search_sessions([row()], SessionQuery(q=search), NOW)


def test_every_word_must_be_somewhere() -> None:
    rows = [row(1), row(2, fields={"cluster": "cluster-2", "job": "python serve.py"})]
    assert names(rows, "q=cluster+train.py") == ["cluster-1"]
    assert names(rows, "q=cluster+-train.py") == ["cluster-2"]
    assert names(rows, "q=job:cluster") == []


def test_a_row_that_does_not_show_why_it_matches_says_it() -> None:
    job = Job("01000000", "", "python train.py", "FAILED", "", None, None)
    found = row(job=job, lines=("python train.py (a)", "boom: KeyError: 'x' in a long line"))
    assert hidden_match(found, parse_search("keyerror")) == ("boom: ", "KeyError", ": 'x' in a long line")
    assert hidden_match(found, parse_search("train.py")) is None
    assert hidden_match(found, parse_search("-keyerror")) is None


def test_filters_narrow_and_each_tells_how_many_it_would_show() -> None:
    rows = [
        row(1, namespace="a", ray="2.60.0"),
        row(2, namespace="b", ray="2.58.1", failed=3),
        row(3, namespace="b", ray="2.60.0", state="lost", completeness=Assessment(0.9, (Reason("vanished", "…"),))),
        row(4, namespace="c", state="live", failed_jobs=1),
    ]
    assert names(rows, "namespace=b") == ["cluster-2", "cluster-3"]
    assert names(rows, "namespace=a&namespace=c") == ["cluster-4", "cluster-1"]
    assert names(rows, "failed=1") == ["cluster-4", "cluster-2"]
    assert names(rows, "complete=0") == ["cluster-3"]
    assert names(rows, "ray=unknown") == ["cluster-4"]
    found = search_sessions(rows, asked("namespace=b&state=lost"), NOW)
    assert found.matching == 1
    assert found.total == 4
    assert found.counts["namespace"] == {"b": 1}
    assert found.counts["state"] == {"lost": 1, "ended": 1}
    assert found.without == {"state": 2}


def test_a_range_is_about_the_start_but_what_lives_is_always_in_a_recent_one() -> None:
    rows = [row(1, started=NOW - 100), row(2, started=NOW - 9000), row(3, started=NOW - 9000, state="live")]
    assert names(rows, "range=1h") == ["cluster-3", "cluster-1"]
    assert names(rows, "from=2026-11-16T02:00&to=2026-11-16T03:00:00Z") == []
    begin = iso(NOW - 5000)
    assert names(rows, f"from={begin}") == ["cluster-1"]
    assert len(names(rows, f"to={begin}")) == 2


@pytest.mark.parametrize("sort", [sign + name for name in ORDERS for sign in ("", "-")])
def test_pages_follow_each_other_whatever_the_order_and_nothing_is_shown_twice(sort: str) -> None:
    draw = random.Random(sort)
    rows = [
        row(
            number,
            state=draw.choice(["live", "ended", "lost"]),
            started=NOW - draw.randrange(500),
            failed=draw.randrange(3),
        )
        for number in range(PAGE * 3 + 7)
    ]
    draw.shuffle(rows)
    seen: list[str] = []
    wish, befores = SessionQuery(sort=sort), []
    while True:
        found = search_sessions(rows, wish, NOW)
        assert found.first == len(seen)
        seen += [found_row.identity for found_row in found.rows]
        befores.append(found.before)
        if found.next is None:
            break
        wish = SessionQuery(sort=sort, after=found.next)
    assert len(seen) == len(set(seen)) == len(rows)
    assert befores[0] is None
    assert befores[1] == ""
    assert search_sessions(rows, SessionQuery(sort=sort, after=str(befores[-1])), NOW).first == PAGE * 2


def test_a_page_begins_where_the_last_ended_although_sessions_come_and_go() -> None:
    rows = [row(number, started=NOW - number) for number in range(PAGE * 2)]
    after = search_sessions(rows, SessionQuery(), NOW).next
    assert after is not None
    newer = [row(1000 + number, started=NOW - 0.5) for number in range(9)]
    without_last = [found for found in rows if found is not rows[PAGE - 1]]
    assert search_sessions([*newer, *without_last], SessionQuery(after=after), NOW).rows[0] is rows[PAGE]


def test_live_sessions_come_first_and_the_reverse_order_is_by_time_alone() -> None:
    rows = [row(1, started=NOW - 10), row(2, started=NOW - 99, state="live"), row(3, started=NOW - 50)]
    assert names(rows, "") == ["cluster-2", "cluster-1", "cluster-3"]
    assert names(rows, "sort=-started") == ["cluster-2", "cluster-3", "cluster-1"]


wishes = st.builds(
    SessionQuery,
    q=st.text(st.characters(codec="utf-8"), max_size=50).map(str.strip),
    state=st.sampled_from(["all", "live", "ended", "lost"]),
    namespaces=st.lists(st.text("abc<>&\"' +%", min_size=1, max_size=5), unique=True, max_size=3).map(tuple),
    rays=st.lists(st.text("2.60", min_size=1, max_size=5), unique=True, max_size=3).map(tuple),
    failed=st.booleans(),
    incomplete=st.booleans(),
    range=st.sampled_from(["1h", "24h", "all"]),
    begin=st.none() | st.integers(0, 2**32).map(float),
    end=st.none() | st.integers(0, 2**32).map(float),
    sort=st.sampled_from(["started", "-started", "cluster"]),
)


@given(wishes)
def test_what_is_asked_for_survives_its_address(wish: SessionQuery) -> None:
    assert parse_query(QueryParams(parse_qsl(wish.link()[1:]))) == wish


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("state=dead", "all, live, ended, lost"),
        ("sort=color", "started, duration"),
        ("range=2y", "1h, 24h"),
        ("failed=maybe", "true or false"),
        ("from=yesterday", "such as 2026-01-31T12:00"),
        ("q=" + "x" * 201, "at most 200"),
        ("&".join(f"ray={n}" for n in range(51)), "at most 50"),
    ],
)
def test_what_cannot_be_understood_is_refused_and_told(query: str, told: str) -> None:
    with pytest.raises(ApiError, match=told) as refused:
        asked(query)
    assert refused.value.status == 400


@pytest.mark.parametrize("after", ["x", "1~2~3~4", "a~b~c", "1~x~z", "~~"])
def test_a_page_that_does_not_exist_is_refused(after: str) -> None:
    with pytest.raises(ApiError, match="leave it out"):
        search_sessions([row()], SessionQuery(after=after), NOW)


@pytest.mark.parametrize("sort", ["duration", "-duration"])
def test_pages_by_duration_lose_nothing_while_what_runs_gets_longer(sort: str) -> None:
    rows = [row(number, state="live" if number % 2 else "ended", started=NOW - number) for number in range(3 * PAGE)]
    seen: list[str] = []
    wish: SessionQuery | None = SessionQuery(sort=sort)
    now = NOW
    while wish is not None:
        found = search_sessions(rows, wish, now)
        seen += [each.identity for each in found.rows]
        wish = SessionQuery(sort=sort, after=found.next) if found.next else None
        now += 40
    assert len(seen) == len(set(seen)) == len(rows)
