"""Summaries of a captured session, compared with the live dashboard's, and trees of hand-written tasks."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.read.tables import Tables
from ray_history.server.api import summaries
from ray_history.server.api.lineage import Attempt, Node, build_tree, count_attempts, tree_json
from tests.history import rebuilt
from tests.server.serving import Served, served
from tests.server.ui.written_sessions import SESSION, write_session
from tests.support.captured import captured, write_archive

S = f"/s/default/parity/{captured().session}"
JOBS = ["04000000", "06000000", "07000000", "08000000", "09000000", "0a000000", "0b000000"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("summaries")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "parity"))
    for file in (folder / "archive").rglob("*"):
        os.utime(file, (1e9, 1e9))  # long ago: the cluster is dead
    with served(store, folder / "cache") as running:
        yield running


def asked(server: Served, path: str, *filters: tuple[str, str, str], **query: str) -> Any:
    pairs = [("raw", "1"), *query.items()]
    for key, predicate, value in filters:
        pairs += [("filter_keys", key), ("filter_predicates", predicate), ("filter_values", value)]
    answer = server.get(f"{S}{path}?{urlencode(pairs)}")
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def cluster(answer: Any) -> Any:
    return answer["data"]["result"]["result"]["node_id_to_summary"]["cluster"]


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Every value with its path; nodes of a tree by key, so that their order does not matter."""
    if isinstance(value, dict) and value:
        return {place: leaf for key, child in value.items() for place, leaf in leaves(child, f"{path}/{key}").items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return leaves({node["key"]: node for node in value}, path)
    return {path: value}


def differences(truth: Any, found: Any) -> dict[str, tuple[Any, Any]]:
    expected, got = leaves(truth), leaves(found)
    return {
        path: (expected.get(path), got.get(path))
        for path in expected.keys() | got.keys()
        if expected.get(path) != got.get(path)
    }


RACE = {
    "ce868e48e2fa9a94b358a37758e50941b1e99ce708000000": "TrainStateActor.get_train_runs",
    "f81ec6ff838b16dbb358a37758e50941b1e99ce708000000": "TrainStateActor.get_train_run_attempts",
}
"""Tasks that are FAILED in the truth with an end before their start: a race in Ray's control plane when a job ends.
Their events say FINISHED, and so they are counted, by name and in all that they stand below."""
RETRIED = {"b90658b5bc57dfc15650c71c8586a608d349c70904000000", "1fe7ee20d2faac3e5650c71c8586a608d349c70904000000"}
"""Ray shows the age of this attempt or that, from answer to answer. Here it is the first's, also in what is above."""


def unknown(differing: dict[str, tuple[Any, Any]]) -> list[str]:
    """Differences without a reason above."""
    raced = [path for path in differing if RACE.keys() & {*path.split("/")}]
    retried = [path for path in differing if RETRIED & {*path.split("/")}]

    def is_known(path: str) -> bool:
        node, _, leaf = path.rpartition("/")
        if leaf == "timestamp":
            return any(task.startswith(node) for task in retried)
        node, counts, _ = node.rpartition("/state_counts")
        by_name = node.rpartition("/")[2] in RACE.values()
        return bool(counts) and leaf in ("FINISHED", "FAILED") and (by_name or any(t.startswith(node) for t in raced))

    return [path for path in differing if not is_known(path)]


@pytest.mark.parametrize(
    "filters",
    [
        [],
        [("job_id", "=", "04000000")],
        [("state", "=", "FAILED")],
        [("state", "!=", "finished"), ("type", "=", "ACTOR_TASK")],
        [("name", "=", "Counter.inc"), ("func_or_class_name", "!=", "x")],
        [("node_id", "!=", "x")],
        [("name", "=", "nobody")],
    ],
    ids=str,
)
def test_the_counts_of_the_index_equal_those_of_the_tasks(
    server: Served, monkeypatch: pytest.MonkeyPatch, filters: list[tuple[str, str, str]]
) -> None:
    ahead = asked(server, "/api/v0/tasks/summarize", *filters)
    closed = server.get(f"{S}/api/v0/tasks/summarize").json
    monkeypatch.setattr(Tables, "task_counts", lambda *_: None)
    assert asked(server, "/api/v0/tasks/summarize", *filters, fresh="1") == ahead
    assert server.get(f"{S}/api/v0/tasks/summarize?fresh={len(filters)}").json == closed


@pytest.mark.parametrize("query", [{}, {"summary_by": "func_name"}, {"summary_by": "task_name"}], ids=str)
def test_tasks_are_counted_by_name_as_in_ray(server: Served, query: dict[str, str]) -> None:
    differing = differences(captured().truth["tasks_summarize"], asked(server, "/api/v0/tasks/summarize", **query))
    assert len(differing) == 4
    assert unknown(differing) == []


@pytest.mark.parametrize("job", JOBS)
def test_the_tasks_of_a_job_are_counted_as_in_ray(server: Served, job: str) -> None:
    found = asked(server, "/api/v0/tasks/summarize", ("job_id", "=", job))
    differing = differences(captured().truth[f"tasks_summarize_func_{job}"], found)
    assert len(differing) == (4 if job == "08000000" else 0)
    assert unknown(differing) == []


def test_names_are_in_rays_order(server: Served) -> None:
    found = asked(server, "/api/v0/tasks/summarize")
    assert list(cluster(found)["summary"]) == list(cluster(captured().truth["tasks_summarize"])["summary"])


def test_the_tree_of_a_session_equals_rays(server: Served) -> None:
    found = asked(server, "/api/v0/tasks/summarize", summary_by="lineage")
    differing = differences(captured().truth["tasks_summarize_lineage"], found)
    assert unknown(differing) == []
    assert len(differing) < 20


@pytest.mark.parametrize("job", JOBS)
def test_the_tree_of_a_job_equals_rays(server: Served, job: str) -> None:
    found = asked(server, "/api/v0/tasks/summarize", ("job_id", "=", job), summary_by="lineage")
    differing = differences(captured().truth[f"tasks_summarize_lineage_{job}"], found)
    assert unknown(differing) == []
    assert len(differing) <= {"04000000": 4, "08000000": 14}.get(job, 0)


@pytest.mark.parametrize("job", ["06000000", "07000000", "0a000000", "0b000000"])
def test_the_tree_of_a_job_is_in_rays_order(server: Served, job: str) -> None:
    found = asked(server, "/api/v0/tasks/summarize", ("job_id", "=", job), summary_by="lineage")
    assert found == captured().truth[f"tasks_summarize_lineage_{job}"]


def test_actors_are_counted_by_class_as_in_ray(server: Served) -> None:
    assert asked(server, "/api/v0/actors/summarize") == captured().truth["actors_summarize"]


def test_filters_of_actors_do_not_change_the_total(server: Served) -> None:
    result = asked(server, "/api/v0/actors/summarize", ("class_name", "=", "counter"))["data"]["result"]
    assert (result["total"], result["num_filtered"]) == (36, 5)
    counts = {"Counter": {"class_name": "Counter", "state_counts": {"DEAD": 4, "ALIVE": 1}}}
    assert result["result"]["node_id_to_summary"]["cluster"]["summary"] == counts


def test_filters_that_ray_applies_at_the_source_change_the_total(server: Served) -> None:
    filters = ("job_id", "=", "04000000"), ("type", "=", "ACTOR_TASK")
    result = asked(server, "/api/v0/tasks/summarize", *filters)["data"]["result"]
    assert (result["total"], result["num_filtered"]) == (66, 28)


def test_an_ended_cluster_has_no_running_tasks(server: Served) -> None:
    answer = server.get(f"{S}/api/v0/tasks/summarize").json
    states = {state for entry in cluster(answer)["summary"].values() for state in entry["state_counts"]}
    assert states == {"FINISHED", "FAILED"}


def test_a_summary_before_the_first_task_is_empty(server: Served) -> None:
    for query in ({}, {"summary_by": "lineage"}):
        answer = asked(server, "/api/v0/tasks/summarize", at="2026-11-15T20:00:00Z", **query)
        assert not cluster(answer)["summary"]
        assert cluster(answer)["total_tasks"] == 0


def test_a_summary_at_a_moment_counts_what_had_happened(server: Served) -> None:
    middle = cluster(asked(server, "/api/v0/tasks/summarize", at="1794776200000", summary_by="lineage"))
    assert 0 < middle["total_tasks"] < 91
    assert attempts_written(middle["summary"]) == sum(middle[f"total_{kind}"] for kind in TOTALS)


TOTALS = ("tasks", "actor_tasks", "actor_scheduled")


def attempts_written(top: list[dict[str, Any]]) -> int:
    return sum(sum(node["state_counts"].values()) for node in top)


def test_a_warning_counts_the_attempts_missing_from_a_tree(server: Served) -> None:
    result = asked(server, "/api/v0/tasks/summarize", ("type", "=", "ACTOR_TASK"), summary_by="lineage")["data"][
        "result"
    ]
    (warning,) = result["warnings"]
    assert warning.startswith("233 of 233 task attempts are not in the tree")


def test_a_too_large_tree_is_refused_with_what_to_do(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "TREE_MAX", 100)
    answer = server.get(f"{S}/api/v0/tasks/summarize?summary_by=lineage")
    assert answer.status == 400
    assert "Select one job" in answer.json["msg"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("summary_by=colour", "func_name, task_name, lineage"),
        ("filter_keys=mood&filter_predicates=%3D&filter_values=good", "Supported filter columns"),
        ("timeout=soon", "an integer"),
    ],
)
def test_an_invalid_parameter_is_refused(server: Served, query: str, expected: str) -> None:
    answer = server.get(f"{S}/api/v0/tasks/summarize?{query}")
    assert answer.status == 400
    assert expected in answer.json["msg"]


def test_head_is_answered(server: Served) -> None:
    for path in ("tasks", "actors"):
        answer = server.get(f"{S}/api/v0/{path}/summarize", method="HEAD")
        assert (answer.status, answer.body) == (200, b"")


# Trees written down by hand ------------------------------------------------------------------------------------------


def task(task_id: str, below: str | None = None, name: str = "work", state: str = "FINISHED", at: int = 1) -> Attempt:
    return Attempt(task_id, below, name, "NORMAL_TASK", state, at)


def method(task_id: str, actor: str, name: str = "A.f", state: str = "FINISHED", at: int = 1) -> Attempt:
    return Attempt(task_id, f"actor:{actor}", name, "ACTOR_TASK", state, at)


def creation(actor: str, below: str | None = None, name: str = "A", at: int = 1) -> Attempt:
    return Attempt(
        f"new-{actor}", f"actor:{actor}", f"{name}.__init__", "ACTOR_CREATION_TASK", "FINISHED", at, name, below
    )


def outline(nodes: list[Node]) -> list[Any]:
    return [[node.key, *outline(node.children)] if node.children else node.key for node in nodes]


def test_no_tasks_make_an_empty_tree() -> None:
    assert "".join(tree_json(build_tree([]))) == "[]"


def test_siblings_with_the_same_name_become_a_group() -> None:
    top = build_tree([task("a", at=5), task("b", at=3), task("c", name="other", at=4)])
    assert outline(top) == [["work", "b", "a"], "c"]
    assert (top[0].type, top[0].timestamp, top[0].counts) == ("GROUP", 3, {"FINISHED": 2})


def test_a_task_counts_the_tasks_below_it_and_is_as_old_as_the_oldest() -> None:
    (top,) = build_tree(
        [task("a", at=9), task("b", "a", name="x", at=7), task("c", "b", name="y", state="FAILED", at=8)]
    )
    assert outline([top]) == [["a", ["b", "c"]]]
    assert (top.timestamp, top.counts) == (7, {"FINISHED": 2, "FAILED": 1})


def test_attempts_of_a_task_are_one_node_with_the_age_of_the_first() -> None:
    (node,) = build_tree([task("a", state="FAILED", at=1), task("a", state="FAILED", at=5), task("a", at=9)])
    assert (node.counts, node.timestamp) == ({"FAILED": 2, "FINISHED": 1}, 1)


def test_methods_stand_below_their_actor_and_the_actor_below_its_creator() -> None:
    top = build_tree(
        [task("t"), creation("1", below="t", at=4), method("m", "1", at=4), task("n", "m", name="nested", at=6)]
    )
    assert outline(top) == [["t", ["actor:1", "new-1", ["m", "n"]]]]
    assert (top[0].children[0].name, top[0].children[0].type, top[0].children[0].timestamp) == ("A", "ACTOR", 4)


def test_methods_of_an_actor_without_creation_task_are_left_out() -> None:
    top = build_tree([task("t"), method("m", "1"), task("below", "m")])
    assert outline(top) == ["t"]
    assert count_attempts(top) == 1


def test_tasks_below_an_unknown_task_are_left_out() -> None:
    assert build_tree([task("b", "gone"), task("c", "b")]) == []


def test_circles_are_left_out_and_do_not_hang() -> None:
    rows = [task("a", "b"), task("b", "a"), task("self", "self"), creation("1", below="m"), method("m", "1"), task("t")]
    assert outline(build_tree(rows)) == ["t"]


def test_siblings_are_sorted_running_pending_failed_and_older_first() -> None:
    states = ["FINISHED", "FAILED", "PENDING_NODE_ASSIGNMENT", "RUNNING_IN_RAY_GET"]
    rows = [task(state, name=state, state=state, at=number) for number, state in enumerate(states, 1)]
    rows += [task("old", name="old", at=0), task("young", name="young", at=99), task("first", name="first", at=1)]
    assert outline(build_tree(rows)) == [*reversed(states[1:]), "FINISHED", "first", "young", "old"]  # 0 is no time


def test_the_order_of_tasks_does_not_change_the_tree() -> None:
    rows = [task("t", at=1), creation("1", below="t", at=2), method("m", "1", at=3), task("n", "m", name="n", at=4)]
    rows += [task(f"leaf{number}", "n", at=10 + number) for number in range(5)]
    expected = outline(build_tree(rows))
    for seed in range(20):
        random.Random(seed).shuffle(rows)
        assert outline(build_tree(rows)) == expected


def test_siblings_of_equal_rank_are_sorted_by_id() -> None:
    rows = [task(f"{number:02}", name=name) for number, name in enumerate(["b", "a", "b", "c"])]
    rows += [creation(str(number)) for number in range(3)]
    expected = outline(build_tree(rows))
    assert expected == [["b", "00", "02"], "01", "03", ["A", *([f"actor:{n}", f"new-{n}"] for n in range(3))]]
    for seed in range(20):
        random.Random(seed).shuffle(rows)
        assert outline(build_tree(rows)) == expected


def test_the_set_of_parents_does_not_change_the_tree() -> None:
    rows = [task("t"), task("u"), creation("1", below="t"), method("m", "1"), method("m", "1", state="FAILED")]
    rows += [task("n", "m"), task("o", "u"), task("o", "u", state="FAILED"), task("lost", "unknown")]
    assert "".join(tree_json(build_tree(rows, {"t", "m", "u", "unknown"}))) == "".join(tree_json(build_tree(rows)))


def test_a_chain_of_100_000_tasks_needs_no_recursion() -> None:
    length = 100_000
    top = build_tree(task(str(number), str(number - 1) if number else None, at=number + 1) for number in range(length))
    assert top[0].counts == {"FINISHED": length}
    text = "".join(tree_json(top))
    assert text.count('"key"') == length
    assert text.endswith('"link": {"type": "task", "id": "0"}}]')


def test_names_are_written_as_json() -> None:
    rows = [task("a", name='say "hi"\n'), task("b", name='say "hi"\n'), creation("1", name="ü")]
    group, actor = json.loads("".join(tree_json(build_tree(rows))))
    assert (group["name"], group["key"], group["link"]) == ('say "hi"\n', 'say "hi"\n', None)
    assert [child["link"] for child in group["children"]] == [{"type": "task", "id": "a"}, {"type": "task", "id": "b"}]
    assert (actor["name"], actor["link"]) == ("ü", {"type": "actor", "id": "1"})


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("2.56.1", ["work"]),
        ("2.57.0", ["first", "second"]),
        ("2.60.0", ["first", "second"]),
        (None, ["first", "second"]),
    ],
)
def test_tasks_are_counted_by_function_or_by_name_as_their_ray_does(
    tmp_path: Path, version: str | None, keys: list[str]
) -> None:
    names = ("first", "second")
    events = [
        event
        for number, name in enumerate(names)
        for event in (
            rebuilt.task(rebuilt.task_id(number), taskName=name, taskFunc=rebuilt.function("work")),
            rebuilt.lifecycle(rebuilt.task_id(number), ("RUNNING", 1)),
        )
    ]
    polled = {"restful__api__version": {"ray_version": version}} if version else {}
    with served(write_session(tmp_path, events, endpoints=polled), tmp_path / "cache") as server:
        path = f"/s/default/written/{SESSION}/api/v0/tasks/summarize"
        found = cluster(server.get(path).json)
        by_name = cluster(server.get(f"{path}?summary_by=task_name").json)
    assert list(found["summary"]) == keys
    assert [each["func_or_class_name"] for each in found["summary"].values()] == keys
    assert list(by_name["summary"]) == ["first", "second"]
