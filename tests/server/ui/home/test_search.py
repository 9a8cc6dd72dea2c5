"""Search, filters, order and pages of the list of sessions."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from ray_history.archive.catalog import Session
from ray_history.archive.layout import Cluster
from ray_history.server.completeness.assessment import Assessment, Reason
from ray_history.server.formatting import iso
from ray_history.server.http.responses import ApiError
from ray_history.server.ui.home.query import ORDERS, SessionQuery, parse_query
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


def names(rows: list[Row], query: str) -> list[str]:
    return [found.session.cluster.name for found in search_sessions(rows, parse_query(QueryParams(query)), NOW).rows]


@given(st.text(max_size=200))
def test_any_search_is_valid(search: str) -> None:
    search_sessions([row()], SessionQuery(q=search), NOW)


def test_every_word_must_match() -> None:
    rows = [row(1), row(2, fields={"cluster": "cluster-2", "job": "python serve.py"})]
    assert names(rows, "q=cluster+train.py") == ["cluster-1"]
    assert names(rows, "q=cluster+-train.py") == ["cluster-2"]
    assert names(rows, "q=job:cluster") == []


def test_filters_count_the_rows_of_each_value() -> None:
    rows = [
        row(1, namespace="a", ray="2.60.0"),
        row(2, namespace="b", ray="2.58.1", failed=3),
        row(3, namespace="b", ray="2.60.0", state="lost", completeness=Assessment(0.9, (Reason("lost contact", "…"),))),
        row(4, namespace="c", state="live", failed_jobs=1),
    ]
    assert names(rows, "namespace=b") == ["cluster-2", "cluster-3"]
    assert names(rows, "namespace=a&namespace=c") == ["cluster-4", "cluster-1"]
    assert names(rows, "failed=1") == ["cluster-4", "cluster-2"]
    assert names(rows, "complete=0") == ["cluster-3"]
    assert names(rows, "ray=unknown") == ["cluster-4"]
    found = search_sessions(rows, parse_query(QueryParams("namespace=b&state=lost")), NOW)
    assert found.matching == 1
    assert found.total == 4
    assert found.counts["namespace"] == {"b": 1}
    assert found.counts["state"] == {"lost": 1, "ended": 1}
    assert found.without == {"state": 2}


def test_a_time_range_applies_to_the_start_and_includes_live_sessions() -> None:
    rows = [row(1, started=NOW - 100), row(2, started=NOW - 9000), row(3, started=NOW - 9000, state="live")]
    assert names(rows, "range=1h") == ["cluster-3", "cluster-1"]
    assert names(rows, "from=2026-11-16T02:00&to=2026-11-16T03:00:00Z") == []
    begin = iso(NOW - 5000)
    assert names(rows, f"from={begin}") == ["cluster-1"]
    assert len(names(rows, f"to={begin}")) == 2


@pytest.mark.parametrize("sort", [sign + name for name in ORDERS for sign in ("", "-")])
def test_pages_in_any_order_show_every_row_once(sort: str) -> None:
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
    shown: list[str] = []
    query, befores = SessionQuery(sort=sort), []
    while True:
        found = search_sessions(rows, query, NOW)
        assert found.first == len(shown)
        shown += [found_row.identity for found_row in found.rows]
        befores.append(found.before)
        if found.next is None:
            break
        query = SessionQuery(sort=sort, after=found.next)
    assert len(shown) == len(set(shown)) == len(rows)
    assert befores[0] is None
    assert befores[1] == ""
    assert search_sessions(rows, SessionQuery(sort=sort, after=str(befores[-1])), NOW).first == PAGE * 2


def test_a_page_begins_behind_the_previous_one_although_sessions_come_and_go() -> None:
    rows = [row(number, started=NOW - number) for number in range(PAGE * 2)]
    after = search_sessions(rows, SessionQuery(), NOW).next
    assert after is not None
    newer = [row(1000 + number, started=NOW - 0.5) for number in range(9)]
    without_last = [found for found in rows if found is not rows[PAGE - 1]]
    assert search_sessions([*newer, *without_last], SessionQuery(after=after), NOW).rows[0] is rows[PAGE]


def test_live_sessions_come_first_unless_the_oldest_come_first() -> None:
    rows = [row(1, started=NOW - 10), row(2, started=NOW - 99, state="live"), row(3, started=NOW - 50)]
    assert names(rows, "") == ["cluster-2", "cluster-1", "cluster-3"]
    assert names(rows, "sort=-started") == ["cluster-2", "cluster-3", "cluster-1"]


@pytest.mark.parametrize("after", ["x", "1~2~3~4", "a~b~c", "1~x~z", "~~"])
def test_an_invalid_cursor_is_refused(after: str) -> None:
    with pytest.raises(ApiError, match="leave it out"):
        search_sessions([row()], SessionQuery(after=after), NOW)


@pytest.mark.parametrize("sort", ["duration", "-duration"])
def test_pages_by_duration_lose_no_row_while_live_sessions_get_longer(sort: str) -> None:
    rows = [row(number, state="live" if number % 2 else "ended", started=NOW - number) for number in range(3 * PAGE)]
    shown: list[str] = []
    query: SessionQuery | None = SessionQuery(sort=sort)
    now = NOW
    while query is not None:
        found = search_sessions(rows, query, now)
        shown += [each.identity for each in found.rows]
        query = SessionQuery(sort=sort, after=found.next) if found.next else None
        now += 40
    assert len(shown) == len(set(shown)) == len(rows)
