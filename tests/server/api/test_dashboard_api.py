"""All routes of the dashboard on archives of one captured session: its answers are those of the live dashboard."""

from __future__ import annotations

import re

import pytest

from ray_history.server.redaction.rules import HIDDEN
from tests.server.api.captured_archives import DEAD_ACTOR, HEAD_NODE, LONG_ACTOR, SECRET, ask, differences, every_url
from tests.server.serving import Served
from tests.support.captured import captured

OURS = re.compile(
    r"/(nodes|logical/actors|events|timezone|usage_stats_enabled"
    r"|api/(jobs/[^/]*$|serve|data|train|cluster_status|version|authentication_mode|v0/cluster_metadata))"
)

_PROCESS = r"cpuPercent|cpuTimes|memoryInfo|numFds"
_FIGURES = (
    r"numExecutedTasks|numObjectRefsInScope|numOwnedObjects|numPendingTasks|numRunningTasks|numInPlasma|"
    r"numLocalObjects|usedObjectStoreMemory|usedResources"
)
EXPLANATIONS = [
    (
        r"^/nodes",
        r"\.(now|cpu|mem|hostMem|cgroupMem|shm|loadAvg|disk|diskIo|diskIoSpeed|network)\b",
        "usage of the host: the poll was seconds before",
    ),
    (r"^/(nodes|logical)", rf"\.({_PROCESS}|mem)\b", "usage of a process: the poll was seconds before"),
    (r"^/(nodes|logical)", rf"\.({_FIGURES})\b", "counters of a core worker: the poll was seconds before"),
    (r"^/(nodes|logical)", r"\.cmdline\b", "a process shows the method that it runs: the poll was seconds before"),
    (r"^/events$", r"\.events\.0[678]000000$", "a request for a job's events leaves an empty group in Ray"),
    (r"^/events", r"\.time$", "Ray adds it on a request for /api/v0/cluster_events"),
    (
        r"^/api/v0/cluster_metadata",
        r"\.(gitCommit|os|sessionId)$",
        "Ray leaves them out where usage statistics are disabled",
    ),
    (r"^/api/cluster_status", r"\.(time|\w+Time)$", "when the report was made and how long it took"),
    (r"^/api/cluster_status", r"\.(autoscalingStatus|clusterStatus)$", "a text with the time of the report"),
    (r"^/api/serve", r"\.controller_health_metrics\.", "timings of Serve's controller: the poll was seconds before"),
]
"""All allowed differences: in which answers, where, and why."""

pytestmark = pytest.mark.xdist_group("captured archives")


def explanation(url: str, path: str) -> str | None:
    for url_pattern, path_pattern, reason in EXPLANATIONS:
        if re.search(url_pattern, url) and re.search(path_pattern, path):
            return reason
    return None


@pytest.mark.parametrize(("cluster", "as_observed"), [("running", ""), ("whole", "raw=1")])
def test_every_answer_equals_that_of_the_live_dashboard(open_server: Served, cluster: str, as_observed: str) -> None:
    truth = captured().truth
    urls = {name: entry["url"] for name, entry in truth["INDEX"].items() if OURS.match(entry["url"]) and name in truth}
    assert len(urls) > 40
    unexplained, reasons = [], set()
    for name, url in urls.items():
        answer = ask(open_server, cluster, url + ("&" if "?" in url else "?") + as_observed)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json; charset=utf-8"), url
        for path, live, ours in differences(truth[name], answer.json):
            reason = explanation(url, path)
            reasons.add(reason)
            if reason is None:
                unexplained.append((url, path, live, ours))
    assert unexplained == []
    assert reasons == {reason for _, _, reason in EXPLANATIONS}, "remove explanations that are no longer needed"


def test_actors_and_jobs_of_an_ended_session_are_closed_with_a_reason(server: Served) -> None:
    actor = ask(server, "whole", f"/logical/actors/{LONG_ACTOR}").json["data"]["detail"]
    assert (actor["state"], actor["exitDetail"]) == ("DEAD", "The cluster was terminated.")
    assert actor["endTime"] > actor["startTime"] > 0
    assert actor["processStats"]["pid"] == actor["pid"]
    job = ask(server, "whole", "/api/jobs/fx-long").json
    assert (job["status"], job["message"]) == ("FAILED", "The cluster was terminated. The job was RUNNING.")
    activity = ask(server, "whole", "/api/component_activities").json["driver"]
    assert activity["is_active"] == "INACTIVE"


def test_raw_shows_the_last_observed_state(server: Served) -> None:
    summary = ask(server, "whole", "/nodes?raw=1").json["data"]["summary"]
    assert {node["raylet"]["state"] for node in summary} == {"ALIVE"}
    assert ask(server, "whole", f"/logical/actors/{LONG_ACTOR}?raw=1").json["data"]["detail"]["state"] == "ALIVE"
    assert ask(server, "whole", "/api/jobs/fx-long?raw=1").json["status"] == "RUNNING"


def test_a_moment_shows_only_what_had_happened(server: Served) -> None:
    early, later = "?at=1794776141000", "?at=1794776170000"
    assert len(ask(server, "whole", "/nodes" + early).json["data"]["summary"]) == 1
    assert len(ask(server, "whole", "/nodes" + later).json["data"]["summary"]) == 2
    assert ask(server, "whole", "/logical/actors" + early).json["data"]["actors"] == {}
    actor = ask(server, "whole", f"/logical/actors/{DEAD_ACTOR}?at=1794776167400").json["data"]["detail"]
    assert (actor["state"], actor["endTime"], actor["exitDetail"]) == ("ALIVE", 0, "-")
    assert [job["submission_id"] for job in ask(server, "whole", "/api/jobs/" + later).json] == ["fx-core"]
    assert ask(server, "whole", "/api/jobs/fx-core" + later).json["status"] == "RUNNING"
    happened = ask(server, "whole", "/events" + later).json["data"]["events"]
    assert [event["message"] for event in happened["global"]] == ["Started a ray job fx-core."]
    assert ask(server, "whole", "/api/train/v2/runs/v1" + later).json == {"train_runs": []}
    (run,) = ask(server, "whole", "/api/train/v2/runs/v1?at=1794776220000").json["train_runs"]
    assert (run["status"], run["end_time_ns"]) == ("RUNNING", None)


@pytest.mark.parametrize("cluster", ["events-only", "logs-only", "unpolled", "polled-only", "odd-answers"])
def test_missing_and_malformed_sources_cause_no_errors(server: Served, cluster: str) -> None:
    for url in every_url():
        if url.startswith("/api/packages"):
            continue
        answer = ask(server, cluster, url)
        assert answer.status < 500, (url, answer.body[:300])
        if answer.headers["content-type"].startswith("application/json"):
            assert answer.json is not None


def test_head_answers_as_get_without_a_body(server: Served) -> None:
    for url in every_url():
        head, get = ask(server, "whole", url, "HEAD"), ask(server, "whole", url)
        assert (head.status, head.body) == (get.status, b""), url
        assert head.headers["content-length"] == get.headers["content-length"], url


def test_secrets_are_redacted_by_default(server: Served, open_server: Served) -> None:
    leaks = {url for url in every_url() if SECRET.encode() in ask(open_server, "secretive", url).body}
    assert leaks >= {"/nodes", f"/nodes/{HEAD_NODE}", "/api/jobs/", "/api/serve/applications/"}
    for url in [*every_url(), "/api/jobs/secretive"]:
        body = ask(server, "secretive", url).body
        assert SECRET.encode() not in body, url
    job = ask(server, "secretive", "/api/jobs/secretive").json
    assert job["runtime_env"]["env_vars"] == {"A": HIDDEN}
    assert job["entrypoint"] == f"DB_PASSWORD={HIDDEN} python x.py"
    assert ask(server, "whole", "/api/jobs/fx-env").json["runtime_env"] == {"env_vars": {"FOO": HIDDEN}}
    assert ask(server, "whole", "/api/v0/runtime_env_redaction").json["data"] == {"redactionEnabled": True}
    assert ask(open_server, "whole", "/api/v0/runtime_env_redaction").json["data"] == {"redactionEnabled": False}


def test_redaction_changes_nothing_else(server: Served, open_server: Served) -> None:
    for url in every_url():
        redacted, whole = ask(server, "whole", url), ask(open_server, "whole", url)
        if redacted.headers["content-type"].startswith("application/json"):
            changed = {path for path, _, _ in differences(whole.json, redacted.json)}
            assert all(".env_vars." in path or path.endswith("redactionEnabled") for path in changed), url
