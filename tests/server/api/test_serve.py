"""Serve's applications: closed by the end of the cluster, and as of a moment."""

from __future__ import annotations

import pytest

from tests.server.api.captured_archives import ask
from tests.server.serving import Served
from tests.support.captured import captured

SERVE = "/api/serve/applications/?at="

pytestmark = pytest.mark.xdist_group("captured archives")


def test_applications_of_an_ended_session_are_closed_in_serves_terms(server: Served) -> None:
    for url in ("/api/serve/applications/", "/api/serve/applications/?at=2026-11-16T00:00:00Z"):
        details = ask(server, "whole", url).json
        application = details["applications"]["fixapp"]
        message = "The cluster was terminated. The application was RUNNING."
        assert (application["status"], application["message"]) == ("UNHEALTHY", message)
        for deployment in application["deployments"].values():
            assert (deployment["status"], deployment["status_trigger"]) == ("UNHEALTHY", "UNSPECIFIED")
            assert deployment["message"] == "The cluster was terminated. The deployment was HEALTHY."
            assert [replica["state"] for replica in deployment["replicas"]] == ["STOPPED"]
        assert [proxy["status"] for proxy in details["proxies"].values()] == ["UNHEALTHY"]
        assert details["target_groups"] == []
    assert ask(server, "whole", "/api/serve/applications/?raw=1").json["applications"]["fixapp"]["status"] == "RUNNING"


def test_serve_defines_the_terms_for_closed_applications() -> None:
    schema = pytest.importorskip("ray.serve.schema")
    common = pytest.importorskip("ray.serve._private.common")
    assert schema.ApplicationStatus("UNHEALTHY")
    assert schema.ProxyStatus("UNHEALTHY")
    assert common.DeploymentStatus("UNHEALTHY")
    assert common.DeploymentStatusTrigger("UNSPECIFIED")
    assert common.ReplicaState("STOPPED")


def test_serve_at_a_moment_has_what_was_deployed_by_then(server: Served) -> None:
    details = captured().truth["serve_applications"]
    started = details["controller_health_metrics"]["controller_start_time"]
    deployed = details["applications"]["fixapp"]["last_deployed_time_s"]
    replicas = [
        replica["start_time_s"]
        for deployment in details["applications"]["fixapp"]["deployments"].values()
        for replica in deployment["replicas"]
    ]
    nothing = {"controller_info": {}, "proxies": {}, "applications": {}, "target_capacity": None}
    assert ask(server, "whole", f"{SERVE}{(started - 5) * 1000:.0f}").json == nothing
    between = ask(server, "whole", f"{SERVE}{(deployed - 0.1) * 1000:.0f}").json
    assert between["controller_info"] == details["controller_info"]
    assert between["applications"] == {}
    starting = ask(server, "whole", f"{SERVE}{(min(replicas) - 0.1) * 1000:.0f}").json["applications"]["fixapp"]
    assert [deployment["replicas"] for deployment in starting["deployments"].values()] == [[], []]
    later = ask(server, "whole", f"{SERVE}{(max(replicas) + 5) * 1000:.0f}").json
    assert later["applications"] == details["applications"]
    assert "controller_health_metrics" not in later


def test_a_replica_that_died_later_runs_at_a_moment(server: Served) -> None:
    application = ask(server, "replaced", f"{SERVE}1794776250000").json["applications"]["fixapp"]
    hello = application["deployments"]["Hello"]
    assert [(replica["replica_id"], replica["state"]) for replica in hello["replicas"]] == [("yvxeys1z", "RUNNING")]
    assert hello["recent_dead_replicas"] == []
    raw = ask(server, "replaced", "/api/serve/applications/?raw=1").json["applications"]["fixapp"]["deployments"][
        "Hello"
    ]
    assert [replica["state"] for replica in raw["recent_dead_replicas"]] == ["STOPPED"]


def test_applications_are_selected_by_how_they_were_deployed(server: Served) -> None:
    assert ask(server, "whole", "/api/serve/applications/?api_type=Imperative").json["applications"].keys() == {
        "fixapp"
    }
    assert ask(server, "whole", "/api/serve/applications?api_type=declarative").json["applications"] == {}


def test_an_unknown_api_type_is_refused(server: Served) -> None:
    answer = ask(server, "whole", "/api/serve/applications?api_type=x")
    assert answer.status == 400
    assert "Must be one of: imperative, declarative" in answer.json["msg"]
