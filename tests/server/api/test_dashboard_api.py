"""The dashboard's own routes, against what the live dashboard of a captured session answered just before it died."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from ray_history.archive import layout
from ray_history.archive.event_files import encode_events
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.api import actors, cluster_status, data, events, jobs, misc, nodes, serve, train
from ray_history.server.app import AppConfig
from ray_history.server.redaction.rules import HIDDEN, is_secret, redacted
from tests.server.serving import Answer, Served, served
from tests.support.captured import captured, write_archive

SESSION = captured().session
HEAD_NODE = "381dbb332c19a792bbab4412448055d8c7ae4561f44587859ade752b"
SIDE_NODE = "e1b0ecf032fb73ce8aaf62b706baec4939d7c4222fc1abf012d26a71"
LONG_ACTOR = "c61af9386886c7e530ea18010b000000"
DEAD_ACTOR = "2b9c3fc99d07c52063bfa5d504000000"
SECRET = "hunter2-never-shown"
OLD = 1_700_000_000

MODULES = (actors, cluster_status, data, events, jobs, misc, nodes, serve, train)
NOT_HERE = ("/api/grafana_health", "/api/prometheus_health")
"""Ray answers 500 when there is no Grafana; its frontend looks at `result` alone."""


def without(*parts: str) -> Callable[[Path], None]:
    """Takes sources away from an archive: whole folders by their names."""

    def remove(folder: Path) -> None:
        for found in [path for path in folder.rglob("*") if path.is_dir() and path.name in parts]:
            shutil.rmtree(found)

    return remove


def aged(folder: Path) -> None:
    for file in folder.rglob("*"):
        os.utime(file, (OLD, OLD))


def with_secrets(folder: Path) -> None:
    """Polled answers, jobs and a platform event with something to hide."""
    endpoints = folder / "fetched_endpoints"
    application = {"deployed_app_config": {"runtime_env": {"env_vars": {"A": SECRET}}, "args": {"hf_token": SECRET}}}
    serve = {"applications": {"app": {"source": "declarative", **application}}}
    (endpoints / "restful__api__serve__applications").write_bytes(msgspec.json.encode(serve))
    (endpoints / "restful__api__custom__thing?x=1").write_bytes(msgspec.json.encode({"api_key": SECRET, "fine": 1}))
    for name in ("restful__nodes?view=summary", f"restful__nodes__{HEAD_NODE}"):
        body = msgspec.json.decode((endpoints / name).read_bytes())
        of_node = body["data"].get("detail") or body["data"]["summary"][0]
        of_node["cmdline"] += [f"--redis-password={SECRET}", "--api-key", SECRET, f'{{"env_vars": {{"A": "{SECRET}"}}']
        (endpoints / name).write_bytes(msgspec.json.encode(body))
    rows = msgspec.json.decode((endpoints / "restful__api__jobs").read_bytes())
    rows.append(rows[0] | {"submission_id": "secretive", "job_id": None, "driver_info": None})
    rows[-1] |= {"entrypoint": f"DB_PASSWORD={SECRET} python x.py", "metadata": {"api_key": SECRET}}
    rows[-1] |= {"runtime_env": {"env_vars": {"A": SECRET}, "pip": [f"https://user:{SECRET}@host/x.whl"]}}
    (endpoints / "restful__api__jobs").write_bytes(msgspec.json.encode(rows))
    event = {
        "eventId": "cG9k",
        "eventType": "PLATFORM_EVENT",
        "timestamp": "2026-11-15T20:57:00Z",
        "severity": "WARNING",
        "message": "Back-off pulling image",
        "platformEvent": {
            "source": {"platform": "KUBERNETES", "component": "kubelet", "metadata": {}},
            "objectKind": "Pod",
            "objectName": "head-x7",
            "reason": "BackOff",
            "message": f"Back-off pulling image, token={SECRET}",
            "customFields": {"registry_password": SECRET, "some_count": "3"},
        },
    }
    key = layout.event_file_key("", HEAD_NODE, None, 1_794_787_200_000_000_999)
    (folder / key).write_bytes(encode_events([msgspec.json.encode(event)]))


def with_a_replaced_replica(folder: Path) -> None:
    """One of Serve's replicas was polled as stopped."""
    file = folder / "fetched_endpoints" / "restful__api__serve__applications"
    body = msgspec.json.decode(file.read_bytes())
    hello = body["applications"]["fixapp"]["deployments"]["Hello"]
    hello["recent_dead_replicas"] = [hello["replicas"].pop() | {"state": "STOPPED"}]
    file.write_bytes(msgspec.json.encode(body))


ODD = [[], 3, "text", {"data": 3}, {"data": {"summary": [3, {"raylet": []}], "detail": {"now": "x", "workers": 1}}}]


def with_odd_answers(folder: Path) -> None:
    """Polled answers of any shape but the right one."""
    for number, file in enumerate(sorted((folder / "fetched_endpoints").iterdir())):
        rows: dict[str, Any] = {"datasets": [1, {}], "train_runs": [{"attempts": 2}], "applications": []}
        file.write_bytes(msgspec.json.encode([rows, *ODD][number % (1 + len(ODD))]))


# All of sessions that ended long ago, but for the first, which seems to go on.
ARCHIVES: dict[str, tuple[Generation, Callable[[Path], None]]] = {
    "running": (Generation.A, without()),
    "whole": (Generation.C, without()),
    "events-only": (Generation.C, without("logs", "fetched_endpoints")),
    "logs-only": (Generation.C, without("fetched_endpoints", "node_events", "job_events")),
    "unpolled": (Generation.C, without("fetched_endpoints")),
    "polled-only": (Generation.C, without("logs", "node_events", "job_events")),
    "odd-answers": (Generation.C, with_odd_answers),
    "secretive": (Generation.C, with_secrets),
    "replaced": (Generation.C, with_a_replaced_replica),
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Path]:
    folder = tmp_path_factory.mktemp("dashboard")
    store = open_store(DirectorySettings(folder / "archive"))
    capture = captured()
    logs = {file: body for file, body in capture.logs.items() if "events/" in file[1]}  # no answer needs the others
    written: dict[Generation, Path] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.captured.captured", lambda: replace(capture, logs=logs))
        for name, (generation, change) in ARCHIVES.items():
            cluster = Cluster("default", name)
            if generation in written:
                copy = folder / "archive" / layout.session_prefix("", cluster, SESSION)
                shutil.copytree(written[generation], copy)
                store.put(layout.marker_key("", cluster, SESSION), b"")
                change(copy)
            else:
                written[generation] = folder / "archive" / write_archive(store, generation, cluster)
    for folder_of_session in (folder / "archive").glob("cluster-history/*/*/*/*"):
        aged(folder_of_session)
    return store, folder / "cache"


@pytest.fixture(scope="module")
def server(archive: tuple[Store, Path]) -> Iterator[Served]:
    """As it runs by default."""
    with served(*archive) as running:
        yield running


@pytest.fixture(scope="module")
def open_server(archive: tuple[Store, Path]) -> Iterator[Served]:
    """One that hides nothing."""
    with served(*archive, AppConfig(redact=False)) as running:
        yield running


def ask(server: Served, cluster: str, url: str, method: str = "GET") -> Answer:
    return server.get(f"/s/default/{cluster}/{SESSION}{url}", method=method)


def every_url() -> list[str]:
    """Each route once, with ids that exist."""
    values = {
        "node_id": HEAD_NODE,
        "actor_id": LONG_ACTOR,
        "job_or_submission_id": "fx-env",
        "job_id": "07000000",
        "protocol": "gcs",
        "package_name": "x.zip",
    }
    paths = [route.path for module in MODULES for route in module.routes]
    queries = ["/nodes?view=hostNameList", "/events?job_id=04000000", "/api/cluster_status?format=1"]
    return [re.sub(r"{(\w+)}", lambda part: values[part[1]], path) for path in paths] + queries


# Against the live dashboard ------------------------------------------------------------------------------------------

OURS = re.compile(
    r"/(nodes|logical/actors|events|timezone|usage_stats_enabled"
    r"|api/(jobs/[^/]*$|serve|data|train|cluster_status|version|authentication_mode|v0/cluster_metadata))"
)

_PROCESS = r"cpuPercent|cpuTimes|memoryInfo|numFds"
_FIGURES = (
    r"numExecutedTasks|numObjectRefsInScope|numOwnedObjects|numPendingTasks|numRunningTasks|numInPlasma|"
    r"numLocalObjects|usedObjectStoreMemory|usedResources"
)
EXPLAINED = [
    (
        r"^/nodes",
        r"\.(now|cpu|mem|hostMem|cgroupMem|shm|loadAvg|disk|diskIo|diskIoSpeed|network)\b",
        "usage of the host: the poll was seconds before",
    ),
    (r"^/(nodes|logical)", rf"\.({_PROCESS}|mem)\b", "usage of a process: the poll was seconds before"),
    (r"^/(nodes|logical)", rf"\.({_FIGURES})\b", "counters of a core worker: the poll was seconds before"),
    (r"^/(nodes|logical)", r"\.cmdline\b", "a process shows the method that it runs: the poll was seconds before"),
    (r"^/events$", r"\.events\.0[678]000000$", "asking for a job's events leaves an empty group behind in Ray"),
    (r"^/events", r"\.time$", "Ray adds it when somebody asks for /api/v0/cluster_events"),
    (r"^/api/cluster_status", r"\.(time|\w+Time)$", "when the report was made and how long it took"),
    (r"^/api/cluster_status", r"\.(autoscalingStatus|clusterStatus)$", "a text with the time of the report"),
    (r"^/api/serve", r"\.controller_health_metrics\.", "timings of Serve's controller: the poll was seconds before"),
]
"""Every difference that there may be: in which answers, where, why."""

_IDS = (
    *("actorId", "actor_id", "eventId", "workerId", "submission_id", "replica_id", "dataset", "operator", "pid"),
    *("attempt_id", "id"),
)


def differences(live: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Leaves that are not equal; rows are matched by their ids."""
    if isinstance(live, dict) and isinstance(ours, dict):
        for key in live.keys() | ours.keys():
            yield from differences(live.get(key, "<absent>"), ours.get(key, "<absent>"), f"{path}.{key}")
    elif isinstance(live, list) and isinstance(ours, list):
        live_rows, our_rows = by_id(live), by_id(ours)
        for key in live_rows.keys() | our_rows.keys():
            found = our_rows.get(key, "<absent>")
            yield from differences(live_rows.get(key, "<absent>"), found, f"{path}[{key}]")
    elif live != ours or isinstance(live, bool) is not isinstance(ours, bool):
        yield path, live, ours


def by_id(items: list[Any]) -> dict[Any, Any]:
    for key in ("raylet", *_IDS):
        ids = [item.get(key) if isinstance(item, dict) else None for item in items]
        if key == "raylet":
            ids = [raylet.get("nodeId") if isinstance(raylet, dict) else None for raylet in ids]
        if None not in ids and len(set(map(str, ids))) == len(items):
            return {str(identity): item for identity, item in zip(ids, items, strict=True)}
    return dict(enumerate(items))


def explanation(url: str, path: str) -> str | None:
    reasons = (why for of_url, of_path, why in EXPLAINED if re.search(of_url, url) and re.search(of_path, path))
    return next(reasons, None)


@pytest.mark.parametrize(("cluster", "as_observed"), [("running", ""), ("whole", "raw=1")])
def test_every_answer_is_that_of_the_live_dashboard(open_server: Served, cluster: str, as_observed: str) -> None:
    truth = captured().truth
    urls = {name: entry["url"] for name, entry in truth["INDEX"].items() if OURS.match(entry["url"]) and name in truth}
    assert len(urls) > 40
    unexplained, reasons = [], set()
    for name, url in urls.items():
        answer = ask(open_server, cluster, url + ("&" if "?" in url else "?") + as_observed)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json; charset=utf-8"), url
        for path, live, ours in differences(truth[name], answer.json):
            why = explanation(url, path)
            reasons.add(why)
            if why is None:
                unexplained.append((url, path, live, ours))
    assert unexplained == []
    assert reasons == {why for _, _, why in EXPLAINED}, "an explanation that is not needed any more"


def test_what_nobody_polled_is_rebuilt_from_ray_s_export_files(open_server: Served) -> None:
    truth = captured().truth
    runs = ask(open_server, "unpolled", "/api/train/v2/runs/v1?raw=1").json
    assert {path for path, _, _ in differences(truth["train_runs_v1"], runs)} == set()
    found = ask(open_server, "unpolled", "/api/data/datasets/07000000?raw=1").json
    paths = {path.rpartition(".")[2] for path, _, _ in differences(truth["data_datasets_07000000"], found)}
    assert paths == {"progress", "total", "total_rows", "queued_blocks", "end_time"}  # counts are in no file
    assert [row["dataset"] for row in found["datasets"]] == [
        row["dataset"] for row in truth["data_datasets_07000000"]["datasets"]
    ]


def test_an_actor_tells_the_same_without_polling_but_for_its_process(open_server: Served) -> None:
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


# What has ended ------------------------------------------------------------------------------------------------------


def test_the_nodes_of_an_ended_session_are_shown_as_last_observed_so_that_their_logs_can_be_chosen(
    server: Served,
) -> None:
    summary = ask(server, "whole", "/nodes?view=summary").json["data"]["summary"]
    assert {node["raylet"]["state"] for node in summary} == {"ALIVE"}
    assert {row["state"] for row in ask(server, "whole", "/api/v0/nodes").rows} == {"DEAD"}
    assert all(node["cpu"] > 0 and node["raylet"]["resourcesTotal"]["CPU"] == 3.0 for node in summary)
    detail = ask(server, "whole", f"/nodes/{SIDE_NODE}").json["data"]["detail"]
    assert detail["raylet"]["state"] == "ALIVE"
    assert detail["actors"][LONG_ACTOR]["state"] == "DEAD"
    assert detail["workers"]


def test_its_hosts_are_those_of_its_end(server: Served) -> None:
    assert ask(server, "whole", "/nodes?view=HOSTNAMELIST").json["data"]["hostNameList"] == ["vm"]


def test_its_actors_and_jobs_are_closed_and_say_why(server: Served) -> None:
    actor = ask(server, "whole", f"/logical/actors/{LONG_ACTOR}").json["data"]["detail"]
    assert (actor["state"], actor["exitDetail"]) == ("DEAD", "The cluster was terminated.")
    assert actor["endTime"] > actor["startTime"] > 0
    assert actor["processStats"]["pid"] == actor["pid"]
    job = ask(server, "whole", "/api/jobs/fx-long").json
    assert (job["status"], job["message"]) == ("FAILED", "The cluster was terminated. The job was RUNNING.")
    activity = ask(server, "whole", "/api/component_activities").json["driver"]
    assert activity["is_active"] == "INACTIVE"


def test_its_applications_are_closed_in_the_words_of_serve(server: Served) -> None:
    for cluster_address in ("/api/serve/applications/", "/api/serve/applications/?at=2026-11-16T00:00:00Z"):
        details = ask(server, "whole", cluster_address).json
        application = details["applications"]["fixapp"]
        said = "The cluster was terminated. The application was RUNNING."
        assert (application["status"], application["message"]) == ("UNHEALTHY", said)
        for deployment in application["deployments"].values():
            assert (deployment["status"], deployment["status_trigger"]) == ("UNHEALTHY", "UNSPECIFIED")
            assert deployment["message"] == "The cluster was terminated. The deployment was HEALTHY."
            assert [replica["state"] for replica in deployment["replicas"]] == ["STOPPED"]
        assert [proxy["status"] for proxy in details["proxies"].values()] == ["UNHEALTHY"]
        assert details["target_groups"] == []
    assert ask(server, "whole", "/api/serve/applications/?raw=1").json["applications"]["fixapp"]["status"] == "RUNNING"


def test_what_serve_calls_closed_is_in_its_own_words() -> None:
    schema = pytest.importorskip("ray.serve.schema")
    common = pytest.importorskip("ray.serve._private.common")
    assert schema.ApplicationStatus("UNHEALTHY")
    assert schema.ProxyStatus("UNHEALTHY")
    assert common.DeploymentStatus("UNHEALTHY")
    assert common.DeploymentStatusTrigger("UNSPECIFIED")
    assert common.ReplicaState("STOPPED")


@pytest.mark.parametrize("cluster", ["whole", "unpolled"])
def test_its_status_has_no_nodes_and_tells_what_was_waited_for(server: Served, cluster: str) -> None:
    text = ask(server, cluster, "/api/cluster_status?format=1").json["data"]["clusterStatus"]
    nodes, resources = text.split("Resources\n")
    assert "Active:\n (no active nodes)\n" in nodes
    assert HEAD_NODE not in nodes
    assert "{'CPU': 100.0}: 1+ pending tasks/actors" in resources
    raw = ask(server, cluster, "/api/cluster_status?format=1&raw=1").json["data"]["clusterStatus"]
    assert f" 1 node_{HEAD_NODE}\n" in raw
    if cluster == "whole":
        status = ask(server, cluster, "/api/cluster_status").json["data"]["clusterStatus"]
        assert status["autoscalerReport"]["activeNodes"] == {}
        assert status["loadMetricsReport"]["resourceDemand"] == [[{"CPU": 100.0}, 1]]
        assert len(ask(server, cluster, "/api/cluster_status?raw=1").json["data"]["clusterStatus"]) > 5


def test_an_older_ray_s_status_is_closed_too() -> None:
    old = "Node status\n---\nHealthy:\n 1 head\n 2 small\nPending:\n a: small\nRecent failures:\n x: y\n\nResources"
    closed = (
        "Node status\n---\nHealthy:\n (no healthy nodes)\nPending:\n (no pending nodes)\nRecent failures:\n x: y\n\n"
    )
    assert cluster_status.without_nodes(old) == closed + "Resources"


def test_raw_shows_it_as_it_was_last_seen(server: Served) -> None:
    summary = ask(server, "whole", "/nodes?raw=1").json["data"]["summary"]
    assert {node["raylet"]["state"] for node in summary} == {"ALIVE"}
    assert ask(server, "whole", f"/logical/actors/{LONG_ACTOR}?raw=1").json["data"]["detail"]["state"] == "ALIVE"
    assert ask(server, "whole", "/api/jobs/fx-long?raw=1").json["status"] == "RUNNING"


# Moments -------------------------------------------------------------------------------------------------------------


def test_at_a_moment_only_what_had_happened_is_there(server: Served) -> None:
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


SERVE = "/api/serve/applications/?at="


def test_at_a_moment_serve_has_what_was_deployed_by_then(server: Served) -> None:
    details = captured().truth["serve_applications"]
    began = details["controller_health_metrics"]["controller_start_time"]
    deployed = details["applications"]["fixapp"]["last_deployed_time_s"]
    replicas = [
        replica["start_time_s"]
        for deployment in details["applications"]["fixapp"]["deployments"].values()
        for replica in deployment["replicas"]
    ]
    nothing = {"controller_info": {}, "proxies": {}, "applications": {}, "target_capacity": None}
    assert ask(server, "whole", f"{SERVE}{(began - 5) * 1000:.0f}").json == nothing
    between = ask(server, "whole", f"{SERVE}{(deployed - 0.1) * 1000:.0f}").json
    assert between["controller_info"] == details["controller_info"]
    assert between["applications"] == {}
    starting = ask(server, "whole", f"{SERVE}{(min(replicas) - 0.1) * 1000:.0f}").json["applications"]["fixapp"]
    assert [deployment["replicas"] for deployment in starting["deployments"].values()] == [[], []]
    later = ask(server, "whole", f"{SERVE}{(max(replicas) + 5) * 1000:.0f}").json
    assert later["applications"] == details["applications"]
    assert "controller_health_metrics" not in later


def test_at_a_moment_a_replica_that_died_later_still_runs(server: Served) -> None:
    application = ask(server, "replaced", f"{SERVE}1794776250000").json["applications"]["fixapp"]
    hello = application["deployments"]["Hello"]
    assert [(replica["replica_id"], replica["state"]) for replica in hello["replicas"]] == [("yvxeys1z", "RUNNING")]
    assert hello["recent_dead_replicas"] == []
    raw = ask(server, "replaced", "/api/serve/applications/?raw=1").json["applications"]["fixapp"]["deployments"][
        "Hello"
    ]
    assert [replica["state"] for replica in raw["recent_dead_replicas"]] == ["STOPPED"]


def test_at_a_moment_nodes_and_processes_show_nothing_of_a_later_poll(server: Served) -> None:
    moment = 1794776200000
    for node in ask(server, "whole", f"/nodes?at={moment}").json["data"]["summary"]:
        assert node["now"] * 1000 == moment
        assert (node["cpu"], node["mem"], node["raylet"]["numWorkers"]) == (0, [0, 0, 0, 0], 0)
        assert node["hostname"] == "vm"
        assert node["raylet"]["nodeManagerPort"] > 0
    detail = ask(server, "whole", f"/nodes/{HEAD_NODE}?at={moment}").json["data"]["detail"]
    last = ask(server, "whole", f"/nodes/{HEAD_NODE}").json["data"]["detail"]
    assert 0 < len(detail["workers"]) < len(last["workers"])
    assert all(worker["createTime"] * 1000 <= moment for worker in detail["workers"])
    assert {worker["pid"] for worker in detail["workers"]} <= {worker["pid"] for worker in last["workers"]}
    assert all(actor["processStats"] is None for actor in detail["actors"].values())


def test_at_a_moment_the_resources_that_were_held_are_told(server: Served) -> None:
    texts = ask(server, "whole", "/nodes?at=1794776170000").json["data"]["nodeLogicalResources"]
    assert texts[HEAD_NODE].startswith("0.2/3.0 CPU\n")
    assert texts[SIDE_NODE].startswith("0.1/3.0 CPU\n")


def test_a_job_that_runs_at_a_moment_has_no_exit_code(server: Served) -> None:
    for url in ("/api/v0/jobs?detail=1&limit=100", "/api/jobs/?"):
        answer = ask(server, "whole", f"{url}&at=1794776170000")
        rows = answer.rows if "v0" in url else answer.json
        running = [row for row in rows if row["status"] == "RUNNING" and row["type"] == "SUBMISSION"]
        assert running
        assert {row["driver_exit_code"] for row in running} == {None}
        assert {row["end_time"] for row in running} == {None}


def test_the_cluster_status_of_a_moment_is_rebuilt(server: Served) -> None:
    text = ask(server, "whole", "/api/cluster_status?format=1&at=1794776170000").json["data"]["clusterStatus"]
    assert text.startswith("======== Autoscaler status: 2026-11-15 20:56:10.000000 ========\nNode status\n-----")
    assert f" 1 node_{HEAD_NODE}" in text
    assert re.search(r"^ \d+[.]\d+/6[.]0 CPU$", text, re.MULTILINE)
    assert re.search(r"^ 0B/45.51GiB memory$", text, re.MULTILINE)
    assert text.count("(unavailable in history server)") == 2


def test_without_polling_the_last_status_is_rebuilt_too(server: Served) -> None:
    text = ask(server, "unpolled", "/api/cluster_status?format=1").json["data"]["clusterStatus"]
    assert "{'CPU': 100.0}: 1+ pending tasks/actors" in text
    assert ask(server, "unpolled", "/api/cluster_status").json == {
        "result": True,
        "msg": "Got cluster status.",
        "data": {"autoscalingStatus": None, "autoscalingError": None, "clusterStatus": None},
    }


# Missing sources and unknown things ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", ["events-only", "logs-only", "unpolled", "polled-only", "odd-answers"])
def test_missing_and_odd_sources_make_no_errors(server: Served, cluster: str) -> None:
    for url in every_url():
        if url.startswith("/api/packages"):
            continue
        answer = ask(server, cluster, url)
        assert answer.status < 500, (url, answer.body[:300])
        if answer.headers["content-type"].startswith("application/json"):
            assert answer.json is not None


def test_a_node_that_nobody_polled_has_the_shape_of_the_others(server: Served) -> None:
    polled_ones = ask(server, "whole", "/nodes").json["data"]["summary"]
    answer = ask(server, "events-only", "/nodes").json["data"]
    for node, with_usage in zip(answer["summary"], polled_ones, strict=True):
        assert node["raylet"]["nodeId"] == with_usage["raylet"]["nodeId"]
        assert with_usage.keys() - node.keys() <= {"hostMem", "cgroupMem"}
        assert with_usage["raylet"]["resourcesTotal"] == node["raylet"]["resourcesTotal"]
        assert (node["cpu"], node["mem"], node["hostname"]) == (0, [0, 0, 0, 0], "vm")
    assert answer["nodeLogicalResources"][SIDE_NODE] == (
        "0.0/3.0 CPU\n0B/22.68GiB memory\n0B/190.73MiB object_store_memory\n0.0/2.0 side"
    )


def test_unknown_things_are_answered_as_ray_answers_them(server: Served) -> None:
    assert ask(server, "whole", f"/nodes/{'0' * 56}").json == {
        "result": True,
        "msg": "Node details fetched.",
        "data": {
            "detail": {
                "raylet": {"objectStoreUsedMemory": 0, "objectStoreAvailableMemory": 0, "stateMessage": None},
                "tpus": [],
                "actors": {},
                "workers": [],
            }
        },
    }
    view = ask(server, "whole", "/nodes?view=details")
    assert (view.status, view.json) == (400, {"result": False, "msg": "Unknown view details", "data": {}})
    actor = ask(server, "whole", "/logical/actors/nobody")
    assert (actor.status, actor.json["result"], actor.json["data"]) == (200, True, {"detail": None})
    job = ask(server, "whole", "/api/jobs/nobody")
    assert (job.status, job.json["msg"]) == (404, "Job nobody does not exist")
    assert ask(server, "whole", "/events?job_id=").json["data"] == {"jobId": "", "events": []}
    assert ask(server, "whole", "/api/data/datasets/nobody").json == {"datasets": []}
    api_type = ask(server, "whole", "/api/serve/applications?api_type=x")
    assert api_type.status == 400
    assert "Must be one of: imperative, declarative" in api_type.json["msg"]


def test_actors_can_be_asked_for_by_their_ids(server: Served) -> None:
    found = ask(server, "whole", f"/logical/actors?ids={LONG_ACTOR},nobody").json["data"]["actors"]
    assert found.keys() == {LONG_ACTOR, "nobody"}
    assert found["nobody"] is None
    assert found[LONG_ACTOR]["className"] == "LongActor"


def test_serve_s_applications_can_be_chosen_by_their_source(server: Served) -> None:
    assert ask(server, "whole", "/api/serve/applications/?api_type=Imperative").json["applications"].keys() == {
        "fixapp"
    }
    assert ask(server, "whole", "/api/serve/applications?api_type=declarative").json["applications"] == {}


def test_whatever_else_was_polled_is_answered(archive: tuple[Store, Path]) -> None:
    with served(*archive) as server:
        assert ask(server, "secretive", "/api/custom/thing?x=1").json == {"api_key": HIDDEN, "fine": 1}
        answer = ask(server, "secretive", "/api/v0/nothing/such?x=1")
    assert (answer.status, answer.json["result"]) == (501, False)
    assert "/api/v0/nothing/such was not polled" in answer.json["msg"]


# Small answers -------------------------------------------------------------------------------------------------------


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


def test_health_and_metrics_are_answered_as_the_frontend_expects(server: Served) -> None:
    assert ask(server, "whole", "/api/gcs_healthz").body == b"success"
    assert ask(server, "whole", "/api/healthz").body == b"raylet: success\ngcs: success"
    for path in NOT_HERE:
        answer = ask(server, "whole", path)
        assert (answer.status, answer.json["result"]) == (200, False)
        assert "no time series" in str(answer.json["data"])


@pytest.mark.parametrize("cluster", ["events-only", "odd-answers", "logs-only", "polled-only"])
def test_a_version_can_always_be_compared_by_rays_clients(server: Served, cluster: str) -> None:
    for url in ("/api/version", "/api/ray/version"):
        told = ask(server, cluster, url).json["ray_version"]
        assert Version(told) >= Version("2.0"), told


def test_versions_and_times_are_known_without_polling(server: Served) -> None:
    version = ask(server, "unpolled", "/api/version").json
    assert (version["version"], version["session_name"]) == ("4", SESSION)
    assert ask(server, "unpolled", "/timezone").json == {"offset": "+00:00", "value": "Europe/London"}
    assert ask(server, "unpolled", "/api/v0/cluster_metadata").json["data"].keys() == {
        *("rayVersion", "pythonVersion", "rayInitCluster"),
    }


def test_platform_events_are_in_the_shape_of_ray_s_messages(open_server: Served) -> None:
    (event,) = ask(open_server, "secretive", "/api/v0/platform_events").json["data"]["events"]
    told = event["platformEvent"]
    assert (event["severity"], event["timestamp"]) == ("WARNING", "2026-11-15T20:57:00Z")
    assert (told["objectKind"], told["objectName"], told["reason"]) == ("Pod", "head-x7", "BackOff")
    assert told["source"]["component"] == "kubelet"
    assert told["customFields"]["someCount"] == "3"
    assert ask(open_server, "whole", "/api/v0/platform_events", "HEAD").status == 200


def test_head_answers_as_get_without_a_body(server: Served) -> None:
    for url in every_url():
        head, get = ask(server, "whole", url, "HEAD"), ask(server, "whole", url)
        assert (head.status, head.body) == (get.status, b""), url
        assert head.headers["content-length"] == get.headers["content-length"], url


# Secrets -------------------------------------------------------------------------------------------------------------


def test_secrets_are_hidden_unless_the_operator_wants_them(server: Served, open_server: Served) -> None:
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


def test_hiding_leaves_everything_else_as_it_is(server: Served, open_server: Served) -> None:
    for url in every_url():
        shown, whole = ask(server, "whole", url), ask(open_server, "whole", url)
        if shown.headers["content-type"].startswith("application/json"):
            changed = {path for path, _, _ in differences(whole.json, shown.json)}
            assert all(".env_vars." in path or path.endswith("redactionEnabled") for path in changed), url


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("python x.py --token abc --n 3", "python x.py --token <redacted> --n 3"),
        ("FOO=password=x y", "FOO=password=<redacted> y"),
        ("curl -H 'Authorization: Bearer abc' host", "curl -H 'Authorization: <redacted>' host"),
        ("git+https://user:abc@host/x", "git+https://user:<redacted>@host/x"),
        ("run --env-json={'env_vars': {'A': 'b'}} -n 3", "run --env-json={'env_vars': {'A': '<redacted>'}} -n 3"),
        ('for {"env_vars": {"A": "it\'s"}}.', 'for {"env_vars": {"A": "<redacted>"}}.'),
        (r'"{\"env_vars\": {\"A\": \"b\"}}" failed', r'"{\"env_vars\": {\"A\": \"<redacted>\"}}" failed'),
        ('{"env_vars": {"A": "b\\"}", "C": 7}} failed', '{"env_vars": {"A":"<redacted>","C":"<redacted>"}} failed'),
        (
            "{'env_vars': {'A': \"it's\", 'C': 'x'}} failed",
            "{'env_vars': {'A': \"<redacted>\", 'C': '<redacted>'}} failed",
        ),
        ("env_vars={'A': 'b', 'C': f(x)} failed", "env_vars=<redacted>"),
        ('{"env_vars": {"A": "torn', '{"env_vars": <redacted>'),
        ("env_vars:\n  A: b\n  C: d", "env_vars:\n  <redacted>"),
        ("env_vars=A=b C=d\nfailed", "env_vars=<redacted>\nfailed"),
        ("in set_env_vars\n  run()\nValueError: boom", "in set_env_vars\n  run()\nValueError: boom"),
        ("KeyError: 'env_vars'", "KeyError: 'env_vars'"),
        ("auth: failed for user bob", "auth: failed for user bob"),
        ("first pass: 7 of 9", "first pass: 7 of 9"),
        ("pass: hunter2", "pass: <redacted>"),
        ("DB_PASS: hunter", "DB_PASS: <redacted>"),
        ("pass=hunter auth='x'", "pass=<redacted> auth=<redacted>"),
        (
            "creds=x OPENAI_KEY=y PARTITION_KEY=z partition_key=z",
            "creds=<redacted> OPENAI_KEY=<redacted> PARTITION_KEY=z partition_key=z",
        ),
        ("https://b/x?X-Amz-Signature=a1&n=1", "https://b/x?X-Amz-Signature=<redacted>&n=1"),
        ("https://b/x?sv=1&sig=a%3D&se=2", "https://b/x?sv=1&sig=<redacted>&se=2"),
        ("GET /x?Signature=a HTTP", "GET /x?Signature=<redacted> HTTP"),
        ("signature = inspect.signature(f)", "signature = inspect.signature(f)"),
        ("--token --password abc", "--token --password <redacted>"),
        ("serve -p 8080", "serve -p 8080"),
        ('{"env_vars": {"A": "b"}}', '{"env_vars":{"A":"<redacted>"}}'),
        ("max_tokens=5 and the tokenizer: x", "max_tokens=5 and the tokenizer: x"),
        ("-Dredis.password= -Dnode=1", "-Dredis.password= -Dnode=1"),
        ("--redis-password=abc", "--redis-password=<redacted>"),
        (["x", "--password", "abc", "--port", "1"], ["x", "--password", "<redacted>", "--port", "1"]),
        ({"serialized_runtime_env": "{not json"}, {"serialized_runtime_env": "<redacted>"}),
        ({"serialized_runtime_env": "{}"}, {"serialized_runtime_env": "{}"}),
        ({"runtimeEnv": {"envVars": {"A": 1, "B": None}}}, {"runtimeEnv": {"envVars": {"A": "<redacted>", "B": None}}}),
        ({"env": [{"name": "API_KEY", "value": "x"}]}, {"env": [{"name": "API_KEY", "value": "<redacted>"}]}),
        ({"awsSecretAccessKey": ["x", {"y": 1}]}, {"awsSecretAccessKey": ["<redacted>", {"y": "<redacted>"}]}),
        ({"pass": "x", "creds": "y", "STRIPE_KEY": "z"}, dict.fromkeys(("pass", "creds", "STRIPE_KEY"), "<redacted>")),
        ({"label_domain_key": "x", "message": "auth: x"}, {"label_domain_key": "x", "message": "auth: x"}),
    ],
)
def test_what_counts_as_a_secret(value: Any, expected: Any) -> None:
    assert redacted(value) == expected


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
_SECRET_NAMES = st.sampled_from(
    ["password", "DB_PASSWORD", "hf_token", "secretKey", "AWS_ACCESS_KEY_ID", "env_vars", "envVars", "Credentials"]
)


@given(_JSON, _SECRET_NAMES, _JSON, st.text(max_size=10))
def test_what_stands_below_a_secret_s_name_is_never_shown(value: Any, name: str, around: Any, key: str) -> None:
    planted = {key: around, "inner": [{name: [value, SECRET, {"deep": SECRET}]}]}
    assert SECRET not in msgspec.json.encode(redacted(planted)).decode()
    assert is_secret(name) or name.lower() in ("env_vars", "envvars")


@given(
    variables=st.dictionaries(st.sampled_from("ABC"), st.text().map(lambda text: f"{text}{SECRET}{text}"), min_size=1),
    write=st.sampled_from([json.dumps, repr, lambda told: json.dumps(json.dumps(told))]),
    around=st.tuples(st.text(max_size=5), st.text(max_size=5)),
)
def test_variables_are_hidden_however_they_are_written_into_a_text(
    variables: dict[str, str], write: Callable[[Any], str], around: tuple[str, str]
) -> None:
    text = f"{around[0]} {write({'env_vars': variables, 'pip': []})} {around[1]}"
    assert SECRET not in redacted(text)


@given(_JSON)
def test_hiding_twice_hides_no_more(value: Any) -> None:
    once = redacted(value)
    assert redacted(once) == once
