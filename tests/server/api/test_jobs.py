"""Jobs as the dashboard and `ray job` read them."""

from __future__ import annotations

import pytest

from tests.server.api.captured_archives import ask
from tests.server.serving import Served

pytestmark = pytest.mark.xdist_group("captured archives")


def test_a_job_running_at_a_moment_has_no_exit_code(server: Served) -> None:
    for url in ("/api/v0/jobs?detail=1&limit=100", "/api/jobs/?"):
        answer = ask(server, "whole", f"{url}&at=1794776170000")
        rows = answer.rows if "v0" in url else answer.json
        running = [row for row in rows if row["status"] == "RUNNING" and row["type"] == "SUBMISSION"]
        assert running
        assert {row["driver_exit_code"] for row in running} == {None}
        assert {row["end_time"] for row in running} == {None}


def test_an_unknown_job_is_not_found(server: Served) -> None:
    job = ask(server, "whole", "/api/jobs/nobody")
    assert (job.status, job.json["msg"]) == (404, "Job nobody does not exist")
