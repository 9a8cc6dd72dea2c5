"""Cluster events of Ray's processes and of Kubernetes."""

from __future__ import annotations

import pytest

from tests.server.api.captured_archives import ask
from tests.server.serving import Served

pytestmark = pytest.mark.xdist_group("captured archives")


def test_an_unknown_job_has_no_events(server: Served) -> None:
    assert ask(server, "whole", "/events?job_id=").json["data"] == {"jobId": "", "events": []}


def test_platform_events_have_the_form_of_rays_messages(open_server: Served) -> None:
    (event,) = ask(open_server, "secretive", "/api/v0/platform_events").json["data"]["events"]
    platform_event = event["platformEvent"]
    assert (event["severity"], event["timestamp"]) == ("WARNING", "2026-11-15T20:57:00Z")
    assert (platform_event["objectKind"], platform_event["objectName"], platform_event["reason"]) == (
        "Pod",
        "head-x7",
        "BackOff",
    )
    assert platform_event["source"]["component"] == "kubelet"
    assert platform_event["customFields"]["someCount"] == "3"
    empty = ask(open_server, "whole", "/api/v0/platform_events", "HEAD")
    assert empty.status == 200
    assert "not recorded" in empty.headers["x-ray-history-note"]
