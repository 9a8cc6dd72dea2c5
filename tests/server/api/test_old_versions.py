"""Answers about sessions of old Rays have the fields, groups and reasons of those versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.server.serving import served
from tests.support.captured import captured, write_archive

VERSIONS = ["2.49", "2.52", "2.55"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("old")
    store = open_store(DirectorySettings(place / "archive"))
    for version in VERSIONS:
        write_archive(store, Generation.C, Cluster("default", f"ray-{version}"), version=version)
    with served(store, place / "cache") as server:
        yield server.url


def body(server: str, version: str, path: str) -> Any:
    url = f"{server}/s/default/ray-{version}/{captured(version).session}{path}"
    return requests.get(url, params={"raw": 1}, timeout=60).json()


@pytest.mark.parametrize("version", VERSIONS)
def test_summaries_are_grouped_as_the_live_ray_grouped_them(server: str, version: str) -> None:
    shown = body(server, version, "/api/v0/tasks/summarize")["data"]["result"]
    told = captured(version).truth["summary"]["data"]["result"]
    assert shown["result"]["node_id_to_summary"] == told["result"]["node_id_to_summary"]
    assert shown["total"] == told["total"]


@pytest.mark.parametrize("version", VERSIONS)
def test_trees_are_sorted_as_the_live_ray_sorted_them(server: str, version: str) -> None:
    def outline(answer: Any) -> list[tuple[str, dict[str, int], Any]]:
        def below(nodes: list[Any]) -> list[tuple[str, dict[str, int], Any]]:
            return [(node["name"], node["state_counts"], below(node["children"])) for node in nodes]

        return below(answer["data"]["result"]["result"]["node_id_to_summary"]["cluster"]["summary"])

    shown = body(server, version, "/api/v0/tasks/summarize?summary_by=lineage")
    assert outline(shown) == outline(captured(version).truth["lineage"])


@pytest.mark.parametrize(
    ("version", "constructor"), [("2.49", "Unknown actor constructor"), ("2.52", None), ("2.55", None)]
)
def test_actors_have_the_fields_of_their_version(server: str, version: str, constructor: str | None) -> None:
    actors = body(server, version, "/logical/actors")["data"]["actors"].values()
    assert len(actors) == 7
    assert {actor.get("actorConstructor") for actor in actors} == {constructor}
    assert not any("tpus" in actor for actor in actors)


def test_what_a_ray_never_exports_is_not_blamed_on_a_variable(server: str) -> None:
    def warning(version: str) -> str:
        text: str = body(server, version, "/api/v0/actors")["data"]["result"]["partial_failure_warning"]
        return text

    assert warning("2.49").startswith("Actors: not exported by Ray 2.49; shown from the dashboard's last answer")
    assert "has to name" not in warning("2.49")
    assert "has to name ACTOR_DEFINITION_EVENT" in warning("2.52"), "its GCS gave up"
    assert warning("2.55") == ""
