"""The state API's listings: Ray's parameters, and those beyond Ray."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import pytest

from ray_history.archive import layout
from ray_history.archive.event_files import encode_events
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.read.json_rows import row
from ray_history.history.read.tables import Tables
from ray_history.history.registry import TABLES
from ray_history.server.api import listing
from ray_history.server.app import AppConfig
from tests.history.rebuilt import actor, actor_life, actor_step, job, lifecycle, rebuild, task, task_id
from tests.server.serving import Answer, Served, served
from tests.server.ui.written_sessions import SESSION, write_session
from tests.support.captured import captured, write_archive

SECRET = "hunter2"
S = f"/s/default/demo/{captured().session}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("listing")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    with served(store, folder / "cache", AppConfig(redact=False)) as running:
        yield running


def fetch(server: Served, table: str, *filters: tuple[str, str, str], **query: object) -> Answer:
    pairs = [(name, str(value)) for name, value in query.items()]
    for key, predicate, value in filters:
        pairs += [("filter_keys", key), ("filter_predicates", predicate), ("filter_values", value)]
    return server.get(f"{S}/api/v0/{table}?{urlencode(pairs)}")


def test_a_listing_has_a_hundred_rows_by_default(server: Served) -> None:
    result = fetch(server, "tasks").json["data"]["result"]
    assert len(result["result"]) == 100
    assert (result["total"], result["num_filtered"], result["num_after_truncation"]) == (349, 349, 349)
    assert len(fetch(server, "tasks", limit=100_000).rows) == 349
    assert fetch(server, "tasks", limit=0).rows == []


def test_all_pages_make_the_whole_listing(server: Served) -> None:
    whole = [row["task_id"] for row in fetch(server, "tasks", limit=1000, sort="task_id").rows]
    pages = [
        row["task_id"]
        for at in range(0, 400, 50)
        for row in fetch(server, "tasks", limit=50, offset=at, sort="task_id").rows
    ]
    assert pages == whole == sorted(whole)


def test_a_listing_too_long_for_a_buffer_is_streamed(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    held = fetch(server, "tasks", limit=1000, detail=1)
    monkeypatch.setattr(listing, "BUFFERED_MAX", 100)
    streamed = fetch(server, "tasks", limit=1001, detail=1)
    assert "content-length" in held.headers
    assert "content-length" not in streamed.headers
    by_attempt = itemgetter("task_id", "attempt_number")
    assert sorted(streamed.rows, key=by_attempt) == held.rows
    assert fetch(server, "tasks", limit=1002, detail=1, sort="task_id").rows == held.rows


def test_a_long_listing_is_sent_in_chunks(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fetch(server, "tasks", limit=1000, detail=1)
    monkeypatch.setattr(listing, "FIRST_CHUNK", 200)
    monkeypatch.setattr(listing, "CHUNK", 100)
    by_key = fetch(server, "tasks", limit=1001, detail=1)
    assert "content-length" not in by_key.headers
    assert by_key.rows == whole.rows
    failed = fetch(server, "tasks", ("state", "!=", "FINISHED"), limit=300, detail=1).rows
    assert failed == [row for row in whole.rows if row["state"] != "FINISHED"]
    monkeypatch.setattr(listing, "RAY_SOURCE_MAX", 100)
    first = fetch(server, "tasks", limit=300, detail=1).rows  # of very many rows, which ones is undefined
    assert len(first) == 300
    assert all(row in whole.rows for row in first)
    rest = fetch(server, "tasks", limit=299, offset=300, detail=1).rows
    assert sorted([*first, *rest], key=itemgetter("task_id", "attempt_number")) == whole.rows


def test_a_truncated_listing_starts_like_the_live_one(server: Served) -> None:
    live = captured().truth["v0_tasks_limit5"]["data"]["result"]["result"]
    assert [row["task_id"] for row in fetch(server, "tasks", limit=5).rows] == [row["task_id"] for row in live]
    for table in TABLES:
        whole = fetch(server, table, limit=1000, detail=1).rows
        assert fetch(server, table, limit=3, detail=1).rows == whole[:3], table
    times = [row["time"] for row in fetch(server, "cluster_events", limit=10).rows]
    assert times == sorted(row["time"] for row in fetch(server, "cluster_events").rows)[:10]


def test_runtime_environments_are_listed_slowest_first_as_in_ray(tmp_path: Path) -> None:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    prefix = write_archive(store, Generation.C, Cluster("default", "demo"))
    rows = [
        {"runtime_env": {"pip": [name]}, "success": True, "creation_time_ms": time, "node_id": "f" * 56}
        for name, time in (("z", "9"), ("a", "9"), ("b", "10"), ("c", None), ("d", "1"))
    ]
    for polled in captured().polled:
        if "v0__runtime_envs" in polled:
            store.put(
                f"{prefix}/fetched_endpoints/{polled}", json.dumps({"data": {"result": {"result": rows}}}).encode()
            )
    with served(store, tmp_path / "cache") as server:
        listed = fetch(server, "runtime_envs").rows
        assert [row["creation_time_ms"] for row in listed] == [None, "10", "9", "9", "1"]
        assert [row["runtime_env"]["pip"] for row in listed[2:4]] == [["z"], ["a"]], "in the polled order"
        assert fetch(server, "runtime_envs", limit=2).rows == listed[:2]
        shortest = fetch(server, "runtime_envs", order="asc", limit=2).rows
        assert [row["creation_time_ms"] for row in shortest] == ["1", "9"]


def test_a_listing_is_buffered_by_its_rows_and_not_by_the_limit(server: Served) -> None:
    few = fetch(server, "tasks", limit=1_000_000, detail=1)
    assert "content-length" in few.headers, "buffered: no query runs while the client reads"
    assert few.rows == fetch(server, "tasks", limit=1000, detail=1).rows


@pytest.mark.parametrize("found", [0, 70, 300])
@pytest.mark.parametrize("held", [50, 1024])
def test_the_first_rows_do_not_depend_on_how_many_were_read_ahead(
    server: Served, monkeypatch: pytest.MonkeyPatch, found: int, held: int
) -> None:
    monkeypatch.setattr(listing, "FIRST_CHUNK", held)
    monkeypatch.setattr(listing, "RAY_SOURCE_MAX", 100)
    usual = fetch(server, "tasks", limit=200, detail=1, a=found, b=held).rows
    few = lambda tables, _, view: f"(from {tables.source('tasks', view)} limit {found})"  # noqa: E731
    monkeypatch.setattr(Tables, "first_tasks", few)
    assert fetch(server, "tasks", limit=200, detail=1, c=found, d=held).rows == usual
    assert len(usual) == 200


@pytest.mark.parametrize("at_once", [10, 100_000], ids=["page by page", "at once"])
def test_many_tasks_are_sorted_by_keys_first(server: Served, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    finished = ("state", "=", "FINISHED")
    parameters = {"detail": 1, "sort": "name", "order": "desc", "offset": 7, "limit": 500}
    whole = fetch(server, "tasks", finished, **parameters)
    monkeypatch.setattr(listing, "SORT_WHOLE_MAX", 5)
    monkeypatch.setattr(listing, "BUFFERED_MAX", at_once)
    by_keys = fetch(server, "tasks", finished, **parameters | {"limit": 501})
    assert by_keys.rows == whole.rows
    assert len(whole.rows) > 20
    assert fetch(server, "tasks", finished, **parameters | {"limit": 17}).rows == whole.rows[:17]


def test_rows_with_shared_environments_equal_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serialized = [
        '{"env_vars": {"TOKEN": "hunter2"}, "pip": ["x\'y"]}',
        "{}",
        '{"working_dir": "s3://a"}',
        "not JSON env_vars",
    ]
    events = [task(task_id(n), serializedRuntimeEnv=serialized[n % 5] if n % 5 < 4 else "") for n in range(40)]
    tables = rebuild(tmp_path, events).tables
    environments = tables.environments()
    assert {each for each, *_ in environments} == {*serialized, ""}
    assert SECRET not in str([texts for _, *texts in environments])
    ways = [
        row("tasks", detail=True, redact=True, few=few, environments=given)
        for few, given in ((True, ()), (False, ()), (False, environments))
    ]
    made = [tables.rows(f"select {way} from {tables.source('tasks')} order by task_id") for way in ways]
    assert made[0] == made[1] == made[2]
    assert SECRET not in str(made)
    monkeypatch.setattr("ray_history.history.read.tables._MAX_ENVIRONMENTS", 3)
    assert rebuild(tmp_path, events).tables.environments() == []


@pytest.mark.parametrize("field", [None, "taskName", "callSite"])
def test_tasks_with_a_shared_secret_are_not_clean(tmp_path: Path, field: str | None) -> None:
    secret = {} if field is None else {field: f"--password {SECRET}"}
    tables = rebuild(tmp_path, [task(task_id(n), **(secret if n == 7 else {})) for n in range(20)]).tables
    assert tables.are_clean() == (field is None)


def test_rows_are_sorted_in_descending_order(server: Served) -> None:
    names = [row["name"] for row in fetch(server, "tasks", limit=1000, sort="name", order="desc").rows]
    assert names == sorted(names, reverse=True)


def test_attempts_of_one_task_are_counted_and_paged_in_order(server: Served) -> None:
    rows = fetch(server, "tasks", limit=1000, detail=1).rows
    task = next(row["task_id"] for row in rows if row["attempt_number"] == 2)
    attempts = [row for row in rows if row["task_id"] == task]
    assert [row["attempt_number"] for row in attempts] == list(range(len(attempts)))
    found = fetch(server, "tasks", ("task_id", "=", task), detail=1).json["data"]["result"]
    assert found["result"] == attempts
    assert (found["total"], found["num_filtered"]) == (len(attempts), len(attempts))
    page = fetch(server, "tasks", ("task_id", "=", task), detail=1, limit=1, offset=1).json["data"]["result"]
    assert page["result"] == attempts[1:2]
    assert (page["total"], page["num_filtered"]) == (len(attempts), len(attempts))
    assert fetch(server, "tasks", ("task_id", "=", task.upper()), detail=1).rows == attempts
    last = fetch(server, "tasks", ("task_id", "=", task), detail=1, sort="attempt_number", order="desc", limit=1).rows
    assert last == attempts[-1:]


@pytest.mark.parametrize("detail", [0, 1])
def test_a_row_is_the_same_in_a_long_listing_a_short_one_and_alone(server: Served, detail: int) -> None:
    rows = fetch(server, "tasks", limit=1000, detail=detail, sort="task_id", exclude_driver=0).rows
    short = [
        row
        for at in range(0, 400, 50)
        for row in fetch(server, "tasks", limit=50, offset=at, detail=detail, sort="task_id", exclude_driver=0).rows
    ]
    assert short == rows
    alone = fetch(server, "tasks", ("task_id", "=", rows[7]["task_id"]), detail=detail).rows
    assert alone == [row for row in rows if row["task_id"] == rows[7]["task_id"]]


@pytest.mark.parametrize(
    ("table", "column"),
    [
        *(("tasks", name) for name in ("creation_time_ms", "start_time_ms", "end_time_ms")),
        *(("nodes", "start_time_ms"), ("workers", "start_time_ms"), ("jobs", "start_time"), ("jobs", "end_time")),
        ("cluster_events", "time"),
    ],
)
def test_rows_are_sorted_by_time(server: Served, table: str, column: str) -> None:
    for order in ("asc", "desc"):
        rows = fetch(server, table, sort=column, order=order, detail=1, limit=1000, raw=1).rows
        times = [row[column] for row in rows]
        present = [time for time in times if time]
        assert len(set(present)) > 1
        assert times[: len(present)] == sorted(present, reverse=order == "desc"), order


def test_tasks_are_sorted_by_duration(server: Served) -> None:
    rows = fetch(server, "tasks", sort="duration", order="desc", detail=1, limit=1000, raw=1).rows
    took = [row["end_time_ms"] - row["start_time_ms"] for row in rows if row["end_time_ms"] and row["start_time_ms"]]
    assert all(one >= other - 1 for one, other in pairwise(took))
    assert took[0] > took[-1]
    assert (
        fetch(server, "tasks", sort="duration", order="desc", limit=5).rows
        == (fetch(server, "tasks", sort="duration", order="desc", limit=2000).rows[:5])
    )


def test_cursors_lead_from_page_to_page(server: Served) -> None:
    whole = fetch(server, "tasks", limit=1000, sort="name").rows
    rows, cursor = [], ""
    while cursor is not None:
        page = fetch(server, "tasks", limit=100, sort="name", cursor=cursor).json["data"]["result"]
        assert page["num_filtered"] == len(whole)
        rows += page["result"]
        cursor = page["next_cursor"]
    assert rows == whole
    assert "next_cursor" not in fetch(server, "tasks", limit=100).json["data"]["result"]


@pytest.mark.parametrize("table", ["cluster_events", "jobs", "runtime_envs"])
def test_pages_of_rows_with_equal_keys_hold_each_row_once(server: Served, table: str) -> None:
    whole = fetch(server, table, limit=1000, detail=1).rows
    for column in TABLES[table].sortable:
        for order in ("asc", "desc"):
            sorted_by = {"sort": column, "order": order, "detail": 1}
            together = fetch(server, table, limit=1000, **sorted_by).rows
            assert len(together) == len(whole)
            for limit in (1, 3):
                places = range(0, len(whole), limit)
                pages = [fetch(server, table, limit=limit, offset=at, **sorted_by).rows for at in places]
                assert [row for page in pages for row in page] == together, (column, order, limit)


def test_a_cursor_is_valid_only_for_its_own_query(server: Served) -> None:
    cursor = fetch(server, "tasks", limit=10, cursor="").json["data"]["result"]["next_cursor"]
    assert fetch(server, "tasks", limit=10, cursor=cursor).status == 200
    assert fetch(server, "tasks", limit=20, cursor=cursor).status == 400
    assert fetch(server, "actors", limit=10, cursor=cursor).status == 400
    question = base64.urlsafe_b64decode(cursor + "==")[8:]
    for offset, status in ((2**63 - 1, 200), (2**63, 400), (2**64 - 1, 400)):  # forged
        made = base64.urlsafe_b64encode(offset.to_bytes(8) + question).decode()
        assert fetch(server, "tasks", limit=10, cursor=made).status == status


def test_internal_rows_can_be_excluded(server: Served) -> None:
    for table, key in (("tasks", "task_id"), ("actors", "actor_id"), ("jobs", "submission_id")):
        everything = fetch(server, table, limit=1000).json["data"]["result"]
        users = fetch(server, table, limit=1000, exclude_internal=1).json["data"]["result"]
        own = fetch(server, table, ("is_internal", "=", "true"), limit=1000).rows
        assert users["total"] == everything["total"] - len(own)
        assert {row[key] for row in users["result"]} == {row[key] for row in everything["result"]} - {
            row[key] for row in own
        }
        assert "is_internal" not in everything["result"][0]
    own = fetch(server, "actors", ("is_internal", "=", "true"), limit=1000).rows
    assert {row["class_name"] for row in own} == {"JobSupervisor", "_StatsActor", "TrainStateActor"}
    assert fetch(server, "nodes", exclude_internal=1).rows == fetch(server, "nodes").rows


def test_the_dashboards_routes_can_exclude_internal_rows(server: Served, tmp_path: Path) -> None:
    actors = server.get(f"{S}/logical/actors").json["data"]["actors"]
    users = server.get(f"{S}/logical/actors?exclude_internal=1").json["data"]["actors"]
    own = {key: actor for key, actor in actors.items() if key not in users}
    assert {actor["className"] for actor in own.values()} == {"JobSupervisor", "_StatsActor", "TrainStateActor"}
    one = next(iter(own))
    assert server.get(f"{S}/logical/actors?exclude_internal=1&ids={one}").json["data"]["actors"] == {one: None}
    internal = {"config": {"rayNamespace": "_ray_internal_dashboard", "metadata": {}}}
    store = write_session(tmp_path, [job("01000000"), job("02000000", **internal)])
    with served(store, tmp_path / "cache") as other:
        for query, found in (("", {"01000000", "02000000"}), ("?exclude_internal=1", {"01000000"})):
            listed = other.get(f"/s/default/written/{SESSION}/api/jobs/{query}").json
            assert {each["job_id"] for each in listed} == found


@pytest.mark.parametrize("sort", ["", "duration", "is_internal", "start_time_ms"])
def test_a_listing_of_one_task_can_exclude_internal_rows(server: Served, sort: str) -> None:
    sorting = {"sort": sort} if sort else {}
    own = fetch(server, "tasks", ("is_internal", "=", "true"), limit=1).rows[0]["task_id"]
    users = fetch(server, "tasks", limit=1, exclude_internal=1).rows[0]["task_id"]
    for one, found in ((own, False), (users, True)):
        rows = fetch(server, "tasks", ("task_id", "=", one), exclude_internal=1, **sorting).rows
        assert {row["task_id"] for row in rows} == ({one} if found else set())
        assert fetch(server, "tasks", ("task_id", "=", one), **sorting).rows


def test_summaries_and_the_timeline_can_exclude_internal_rows(server: Served) -> None:
    def names(path: str) -> set[str]:
        found = server.get(f"{S}/api/v0/{path}").json["data"]["result"]["result"]["node_id_to_summary"]
        return set(found["cluster"]["summary"])

    for way in (
        "",
        "&filter_keys=attempt_number&filter_predicates=%3D&filter_values=0",
    ):  # counts of the index, and of tasks
        left_out = names(f"tasks/summarize?x=1{way}") - names(f"tasks/summarize?exclude_internal=1{way}")
        assert "TrainStateActor.get_train_runs" in left_out
        assert "Counter.inc" not in left_out
    assert "JobSupervisor" in names("actors/summarize") - names("actors/summarize?exclude_internal=1")
    timeline = server.get(f"{S}/api/v0/tasks/timeline").body
    assert b"TrainStateActor.get_train_runs" in timeline
    assert b"TrainStateActor.get_train_runs" not in server.get(f"{S}/api/v0/tasks/timeline?exclude_internal=1").body


def test_tasks_with_a_name_are_counted_as_ray_does_at_the_source(server: Served) -> None:
    """Ray finds them by their plain name, and then compares the one with the actor's `repr`."""
    answer = fetch(server, "tasks", ("name", "=", "Counter.inc"), limit=1000).json["data"]["result"]
    live = captured().truth["v0_tasks_f_name_Counter.inc"]["data"]["result"]
    for count in ("total", "num_after_truncation", "num_filtered"):
        assert answer[count] == live[count], count


def test_filters_ignore_the_case_of_text(server: Served) -> None:
    failed = fetch(server, "tasks", ("state", "=", "failed"), limit=1000).rows
    assert failed == fetch(server, "tasks", ("STATE", "=", "FAILED"), limit=1000).rows
    assert {row["state"] for row in failed} == {"FAILED"}
    others = fetch(server, "tasks", ("state", "!=", "FAILED"), limit=1000).json["data"]["result"]
    assert others["num_filtered"] == 349 - len(failed)


def test_filters_ignore_the_case_of_ids(server: Served) -> None:
    for table, key in (("cluster_events", "event_id"), ("jobs", "submission_id"), ("actors", "actor_id")):
        row = fetch(server, table).rows[0]
        for text in (row[key], row[key].lower(), row[key].upper()):
            assert fetch(server, table, (key, "=", text)).rows == [row], text
            assert row not in fetch(server, table, (key, "!=", text), limit=1000).rows, text


def test_filters_compare_numbers_and_flags(server: Served) -> None:
    rows = fetch(server, "tasks", ("attempt_number", "=", "1"), limit=1000).rows
    assert rows
    assert {row["attempt_number"] for row in rows} == {1}
    assert [row["is_head_node"] for row in fetch(server, "nodes", ("is_head_node", "=", "True")).rows] == [True]
    wrong = fetch(server, "tasks", ("worker_pid", "=", "many"))
    assert wrong.status == 400
    assert "int type column" in wrong.json["msg"]


@pytest.mark.parametrize("table", ["tasks", "tasks/summarize", "actors/summarize", "workers"])
def test_a_filter_with_a_too_long_number_is_refused(server: Served, table: str) -> None:
    column = "worker_pid" if table.startswith("tasks") else "pid"
    for digits, status in ((18, 200), (19, 400), (39, 400), (4000, 400)):
        for sign in ("", "-"):
            assert fetch(server, table, (column, "=", sign + "9" * digits)).status == status, digits
    assert "at most 18 digits" in fetch(server, table, (column, "!=", "9" * 40)).json["msg"]


def test_kuberays_aliases_of_two_columns_work(server: Served) -> None:
    assert fetch(server, "tasks", ("task_type", "=", "ACTOR_TASK"), limit=1000).rows == (
        fetch(server, "tasks", ("type", "=", "ACTOR_TASK"), limit=1000).rows
    )


def test_filters_apply_before_the_limit(server: Served) -> None:
    assert len(fetch(server, "tasks", ("name", "=", "ok"), limit=5).rows) == 5
    assert fetch(server, "tasks", ("name", "=", "ok"), limit=5).json["data"]["result"]["num_filtered"] == 12


@pytest.mark.parametrize("table", TABLES)
def test_every_filter_and_sort_column_works(server: Served, table: str) -> None:
    values = {int: "1", bool: "true", str: "x'\"; drop"}
    for key, column_type in TABLES[table].filters.items():
        value = values[column_type]
        for predicate in ("=", "!="):
            assert fetch(server, table, (key, predicate, value)).status == 200, key
    for key in TABLES[table].sortable:
        assert fetch(server, table, sort=key).status == 200, key


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit=abc", "an integer"),
        ("limit=-1", "at least 0"),
        ("detail=perhaps", "true or false"),
        ("exclude_driver=7", "true or false"),
        ("timeout=x", "an integer"),
        ("filter_keys=state", "one of each"),
        ("filter_keys=state&filter_predicates=%3D", "one of each"),
        ("filter_keys=state&filter_predicates=<&filter_values=1", "Available predicates"),
        ("filter_keys=nope&filter_predicates=%3D&filter_values=1", "Supported filter columns"),
        ("sort=nope", "expected one of"),
        ("cursor=nonsense", "start again with an empty cursor=, or use offset="),
        ("cursor=&offset=3", "either cursor or offset"),
        ("exclude_internal=perhaps", "true or false"),
        ("order=up", "expected one of"),
        ("at=yesterday", "expected 20"),
        ("&".join(["filter_keys=state&filter_predicates=%3D&filter_values=1"] * 30), "at most"),
        ("filter_keys=state&filter_predicates=%3D&filter_values=" + "x" * 5000, "at most"),
    ],
)
def test_an_invalid_parameter_is_refused_with_what_is_expected(server: Served, query: str, expected: str) -> None:
    answer = server.get(f"{S}/api/v0/tasks?{query}")
    assert answer.status == 400
    assert answer.json["result"] is False
    assert expected in answer.json["msg"]


def test_a_listing_shows_the_state_at_a_moment(server: Served) -> None:
    early = fetch(server, "tasks", at="2026-11-15T20:55:50Z", limit=1000).rows
    assert 0 < len(early) < 349
    assert fetch(server, "tasks", at=1794776150, limit=1000).rows == early
    assert fetch(server, "tasks", at="2020-01-01T00:00:00Z").rows == []


def test_every_answer_has_security_headers(server: Served) -> None:
    for path in ("/clusters", f"{S}/api/v0/nodes", f"{S}/nothing-here", "/nodes"):
        headers = server.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["x-request-id"]


def test_a_request_id_is_returned(server: Served) -> None:
    assert server.get("/livez", {"X-Request-Id": "abc-1"}).headers["x-request-id"] == "abc-1"


def test_a_too_long_query_is_refused(server: Served) -> None:
    assert server.get(f"{S}/api/v0/nodes?x={'y' * 20_000}").status in (400, 414)


def test_requests_are_counted(server: Served) -> None:
    server.get("/livez")
    metrics = server.get("/metrics").body.decode()
    assert 'ray_history_requests_total{method="GET",status="200"}' in metrics
    assert "ray_history_sessions_open 1" in metrics


def test_values_of_environment_variables_are_redacted_by_default(
    server: Served, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = server.sessions.indexer.store
    with served(store, tmp_path_factory.mktemp("hidden")) as redacted:
        for table in ("tasks", "actors", "jobs", "runtime_envs"):
            plain = fetch(server, table, limit=1000, detail=1).body
            hidden = fetch(redacted, table, limit=1000, detail=1).body
            assert b"<redacted>" in hidden
            assert b"job-level" not in hidden
            assert b"<redacted>" not in plain
        assert b"job-level" in fetch(server, "jobs", limit=1000, detail=1).body


def test_secrets_in_free_text_are_redacted_in_every_column(tmp_path: Path) -> None:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    prefix = write_archive(store, Generation.C, Cluster("default", "demo"))
    environment = json.dumps({"pip": [f"https://ci:{SECRET}@wheels.example/simple/"], "env_vars": {"A": SECRET}})
    events = [
        task(
            task_id(1), taskName=f"run --api-key {SECRET}", serializedRuntimeEnv=environment, callSite=f"pwd='{SECRET}'"
        ),
        lifecycle(
            task_id(1), ("RUNNING", 1), ("FAILED", 2), error=("TASK_EXECUTION_EXCEPTION", f"no such token: {SECRET}")
        ),
        actor(serializedRuntimeEnv=environment, name=f"password={SECRET}", reprName=f"Client(auth='{SECRET}')"),
        actor_life(actor_step("ALIVE", 1)),
    ]
    store.put(layout.event_file_key(prefix, "f" * 56, "01000000", 2), encode_events(map(msgspec.json.encode, events)))
    with (
        served(store, tmp_path / "open", AppConfig(redact=False)) as unredacted,
        served(store, tmp_path / "safe") as redacted,
    ):
        for table, of in (("tasks", "task_id"), ("actors", "actor_id")):
            (key,) = {
                row[of] for row in fetch(unredacted, table, limit=1000, detail=1).rows if SECRET in json.dumps(row)
            }
            for detail in (0, 1):
                (row,) = fetch(redacted, table, (of, "=", key), detail=detail).rows
                assert SECRET not in json.dumps(row)
                assert "<redacted>" in row["name"]
