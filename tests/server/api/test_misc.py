"""The dashboard's small routes."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from ray_history.archive.stores import Store
from ray_history.server.redaction.rules import HIDDEN
from tests.server.api.captured_archives import SESSION, ask
from tests.server.serving import Served, served

pytestmark = pytest.mark.xdist_group("captured archives")


def test_a_finished_session_cannot_be_profiled(server: Served) -> None:
    for path in ("/worker/traceback", "/worker/cpu_profile?pid=1", "/memory_profile", "/task/traceback?task_id=x"):
        answer = ask(server, "whole", path)
        assert (answer.status, answer.json["result"]) == (403, False)
        assert "cannot be profiled" in answer.json["msg"]
    assert ask(server, "whole", "/api/profiling_enabled").json["data"]["profilingEnabled"] is False


def test_there_are_no_objects_and_the_answer_says_why(server: Served) -> None:
    listing = ask(server, "whole", "/api/v0/objects?limit=10").json["data"]["result"]
    assert (listing["total"], listing["result"]) == (0, [])
    assert "no data about objects" in listing["partial_failure_warning"]
    summary = ask(server, "whole", "/api/v0/objects/summarize").json["data"]["result"]["result"]
    assert summary["node_id_to_summary"]["cluster"]["total_objects"] == 0


def test_health_is_answered_as_the_frontend_expects(server: Served) -> None:
    assert ask(server, "whole", "/api/gcs_healthz").body == b"success"
    assert ask(server, "whole", "/api/healthz").body == b"raylet: success\ngcs: success"


@pytest.mark.parametrize("cluster", ["events-only", "odd-answers", "logs-only", "polled-only"])
def test_a_version_can_always_be_compared_by_rays_clients(server: Served, cluster: str) -> None:
    for url in ("/api/version", "/api/ray/version"):
        version = ask(server, cluster, url).json["ray_version"]
        assert Version(version) >= Version("2.0"), version


def test_versions_and_the_time_zone_need_no_polling(server: Served) -> None:
    version = ask(server, "unpolled", "/api/version").json
    assert (version["version"], version["session_name"]) == ("4", SESSION)
    assert ask(server, "unpolled", "/timezone").json == {"offset": "+00:00", "value": "Europe/London"}
    assert ask(server, "unpolled", "/api/v0/cluster_metadata").json["data"].keys() == {
        *("rayVersion", "pythonVersion", "rayInitCluster", "gitCommit", "os", "sessionId"),
    }


def test_the_commit_and_session_come_from_other_sources_if_the_metadata_lack_them(server: Served) -> None:
    version = ask(server, "unpolled", "/api/version").json
    metadata = ask(server, "unpolled", "/api/v0/cluster_metadata").json["data"]
    assert (metadata["gitCommit"], metadata["sessionId"]) == (version["ray_commit"], SESSION)
    assert metadata["os"] is None, "this archive has no log that tells"


def test_any_other_polled_path_is_answered(archive: tuple[Store, Path]) -> None:
    with served(*archive) as server:
        assert ask(server, "secretive", "/api/custom/thing?x=1").json == {"api_key": HIDDEN, "fine": 1}
        unpolled = ask(server, "secretive", "/api/v0/delay/5?x=1")
        unknown = ask(server, "secretive", "/api/v0/nothing/such?x=1")
    assert (unpolled.status, unpolled.json["result"]) == (501, False)
    assert "/api/v0/delay/5 was not polled" in unpolled.json["msg"]
    assert (unknown.status, unknown.json["result"]) == (404, False)
    assert "/api/v0/nothing/such does not exist" in unknown.json["msg"]
