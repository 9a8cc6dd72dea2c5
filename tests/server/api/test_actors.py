"""Actors as the dashboard shows them."""

from __future__ import annotations

import re

import pytest

from tests.server.api.captured_archives import DEAD_ACTOR, LONG_ACTOR, ask, differences
from tests.server.serving import Served
from tests.support.captured import captured

pytestmark = pytest.mark.xdist_group("captured archives")


def test_without_polling_only_the_figures_of_an_actors_process_are_missing(open_server: Served) -> None:
    live = captured().truth["logical_actors"]["data"]["actors"]
    ours = ask(open_server, "unpolled", "/logical/actors?raw=1").json["data"]["actors"]
    assert ours.keys() == live.keys()
    process = live[LONG_ACTOR].keys() - live[DEAD_ACTOR].keys() | {"processStats", "mem"}
    for actor_id, actor in live.items():
        for path, theirs, found in differences(actor, ours[actor_id]):
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
