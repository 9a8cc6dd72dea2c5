"""Actors as the dashboard shows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ray_history.archive.layout import endpoint_name
from tests.history.rebuilt import (
    ACTOR,
    NODE,
    WORKER,
    actor,
    actor_life,
    actor_step,
    node,
    node_life,
    worker,
    worker_alive,
    worker_dead,
)
from tests.server.api.captured_archives import DEAD_ACTOR, LONG_ACTOR, ask, differences
from tests.server.serving import Served, served
from tests.server.ui.written_sessions import SESSION, write_session
from tests.support.captured import captured

pytestmark = pytest.mark.xdist_group("captured archives")


def test_without_polling_only_the_figures_of_an_actors_process_are_missing(open_server: Served) -> None:
    live = captured().truth["logical_actors"]["data"]["actors"]
    ours = ask(open_server, "unpolled", "/logical/actors?raw=1").json["data"]["actors"]
    assert ours.keys() == live.keys()
    process = live[LONG_ACTOR].keys() - live[DEAD_ACTOR].keys() | {"processStats", "mem"}
    for actor_id, live_actor in live.items():
        for path, theirs, found in differences(live_actor, ours[actor_id]):
            key = re.split(r"[.\[]", path)[1]
            if key in ("startTime", "endTime", "timestamp"):  # the clock is read twice: for the table, for the event
                assert abs(theirs - found) < 20
            else:
                assert key in process


def test_an_unknown_actor_is_null_as_in_ray(server: Served) -> None:
    actor = ask(server, "whole", "/logical/actors/nobody")
    assert (actor.status, actor.json["result"], actor.json["data"]) == (200, True, {"detail": None})


def test_actors_are_selected_by_ids(server: Served) -> None:
    found = ask(server, "whole", f"/logical/actors?ids={LONG_ACTOR},nobody").json["data"]["actors"]
    assert found.keys() == {LONG_ACTOR, "nobody"}
    assert found["nobody"] is None
    assert found[LONG_ACTOR]["className"] == "LongActor"


def test_an_actor_that_waits_for_its_process_has_no_time_and_no_worker(tmp_path: Path) -> None:
    store = write_session(tmp_path, [actor(), actor_life(actor_step("PENDING_CREATION", 1))])
    with served(store, tmp_path / "cache") as server:
        found = server.get(f"/s/default/written/{SESSION}/logical/actors?raw=1").json["data"]["actors"][ACTOR]
    assert (found["timestamp"], found["address"]["workerId"]) == (0.0, "")


def test_used_resources_have_the_names_that_ray_gave_them(tmp_path: Path) -> None:
    name = "GPU_group_0_32da" + "0" * 32
    slots = {"resourceSlots": [{"slot": "0", "allocation": 0.5}]}
    stats = {"workerId": WORKER, "pid": 17, "usedResources": {"GPUGroup032Da" + "0" * 32: slots, "CPU": slots}}
    page = {"now": 1.0, "workers": [{"pid": 17, "coreWorkerStats": [stats]}], "raylet": {"nodeId": NODE}}
    store = write_session(
        tmp_path,
        [
            *(node(), node_life("ALIVE", 0)),
            actor(requiredResources={name: 0.5, "CPU": 1.0}),
            actor_life(actor_step("ALIVE", 2, NODE, WORKER, 17)),
        ],
        endpoints={endpoint_name(f"/nodes/{NODE}"): {"result": True, "data": {"detail": page}}},
    )
    with served(store, tmp_path / "cache") as server:
        session = f"/s/default/written/{SESSION}"
        listed = server.get(f"{session}/logical/actors?raw=1").json["data"]["actors"][ACTOR]
        single = server.get(f"{session}/logical/actors/{ACTOR}?raw=1").json["data"]["detail"]
    assert listed["usedResources"] == {name: slots, "CPU": slots}
    assert single["usedResources"] == stats["usedResources"]


def test_processes_that_died_after_the_poll_of_their_node_are_gone(tmp_path: Path) -> None:
    def process(worker_id: str, pid: int) -> dict[str, object]:
        return {"pid": pid, "coreWorkerStats": [{"workerId": worker_id, "pid": pid, "actorTitle": "Counter()"}]}

    other = "0d" * 28
    ending = {"pid": 11446, "coreWorkerStats": []}  # of the same worker, which is about to exit
    workers = [process(WORKER, 17), process(other, 18), ending]
    stats = [stats for each in workers for stats in each["coreWorkerStats"]]  # type: ignore[attr-defined]
    page = {"now": 1.0, "workers": workers, "raylet": {"nodeId": NODE, "coreWorkersStats": stats}}
    store = write_session(
        tmp_path,
        [
            *(node(), node_life("ALIVE", 0)),
            *(worker(), worker_alive(1), worker_dead(3)),
            actor(),
            actor_life(actor_step("ALIVE", 2, NODE, WORKER, 17), actor_step("DEAD", 3)),
        ],
        endpoints={
            endpoint_name(f"/nodes/{NODE}"): {"result": True, "data": {"detail": page}},
            endpoint_name("/nodes?view=summary"): {"result": True, "data": {"summary": [page]}},
        },
    )
    with served(store, tmp_path / "cache") as server:
        session = f"/s/default/written/{SESSION}"
        (summary,) = server.get(f"{session}/nodes?view=summary").json["data"]["summary"]
        assert [each["pid"] for each in summary["raylet"]["coreWorkersStats"]] == [18]
        for view in ("?raw=1", ""):  # the other process lived until the end
            shown = server.get(f"{session}/nodes/{NODE}{view}").json["data"]["detail"]
            assert [each["pid"] for each in shown["workers"]] == [18]
            listed = server.get(f"{session}/logical/actors{view}").json["data"]["actors"][ACTOR]
            assert (listed["processStats"], listed.get("actorTitle")) == (None, None)
