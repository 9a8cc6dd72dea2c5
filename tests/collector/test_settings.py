"""The collector's settings: KubeRay's names, old and new."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster
from ray_history.collector.settings import SETTINGS, CollectorSettings, WrongSetting, parse_duration, resolve

OPERATOR = {
    "POD_IP": "10.0.0.7",
    "RAY_CLUSTER_NAME": "trainer-abcde",
    "RAY_CLUSTER_NAMESPACE": "team",
    "RAY_ROLE": "Head",
    "EVENTS_PORT": "8084",
    "FQ_RAY_IP": "trainer-abcde-head-svc.team.svc.cluster.local",
    "OWNER_KIND": "RayJob",
    "OWNER_NAME": "nightly",
    "RAY_DASHBOARD_ADDRESS": "http://localhost:8265",
    "STORAGE_BACKEND": "S3",
}
"""The variables that KubeRay's operator injects."""


def settings(env: dict[str, str] | None = None, **flags: str) -> CollectorSettings:
    return resolve(flags, {"RAY_CLUSTER_NAME": "c"} if env is None else env)


def test_the_operators_environment_alone_is_enough() -> None:
    got = settings(OPERATOR)
    assert got.cluster == Cluster("team", "trainer-abcde", "rayjob", "nightly")
    assert (got.head, got.port, got.host) == (True, 8084, "127.0.0.1")


def test_off_kubernetes_a_cluster_name_is_enough() -> None:
    got = settings({}, cluster="laptop")
    assert got.cluster == Cluster("default", "laptop")
    assert (got.ray_root, got.data_dir) == (Path("/tmp/ray"), Path("/tmp/ray/event-data"))
    assert (got.head, got.push_interval, got.compress) == (False, 10.0, True)


def test_the_environment_wins_over_flags() -> None:
    assert (
        settings({"RAY_CLUSTER_NAME": "env", "PUSH_INTERVAL": "3s"}, cluster="flag", push_interval="9s").push_interval
        == 3
    )
    assert settings({"PUSH_INTERVAL": ""}, cluster="flag", push_interval="9s").push_interval == 9


def test_the_spool_follows_rays_directory() -> None:
    assert settings({"RAY_CLUSTER_NAME": "c", "RAY_TMP_ROOT": "/data/ray"}).data_dir == Path("/data/ray/event-data")


def test_events_are_uploaded_every_push_interval_by_default() -> None:
    assert settings(push_interval="7s").events_interval == 7
    assert settings(push_interval="7s", event_rotation_interval="2m").events_interval == 120


def test_journals_are_on_by_default_and_can_be_switched_off() -> None:
    assert settings().journal_interval == 2
    assert settings({"RAY_CLUSTER_NAME": "c", "RAY_COLLECTOR_EVENT_JOURNAL_INTERVAL": "0s"}).journal_interval == 0


@pytest.mark.parametrize(
    ("text", "seconds"), [("300ms", 0.3), ("1m30s", 90), ("1h", 3600), ("1.5s", 1.5), ("0", 0), ("2h3m4s", 7384)]
)
def test_durations_are_gos(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "s", "1x", "1m 30s", "-5s", "1m30"])
def test_a_bare_number_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="such as 10s"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("env", "fix"),
    [
        ({}, "use --cluster NAME or set RAY_CLUSTER_NAME"),
        ({"RAY_CLUSTER_NAME": "Upper_Case"}, "is not a valid name"),
        ({"RAY_CLUSTER_NAME": "c", "RAY_ROLE": "boss"}, "use Head or Worker"),
        ({"RAY_CLUSTER_NAME": "c", "OWNER_KIND": "raycron", "OWNER_NAME": "x"}, "use rayjob or rayservice"),
        ({"RAY_CLUSTER_NAME": "c", "OWNER_KIND": "rayjob"}, "must be given together"),
        (
            {"RAY_CLUSTER_NAME": "c", "ENABLE_LOG_COLLECTOR": "false", "ENABLE_EVENT_COLLECTOR": "0"},
            "nothing to collect",
        ),
        ({"RAY_CLUSTER_NAME": "c", "RAY_NODE_ID": "node 7"}, "write the node's id in hex"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_fix(env: dict[str, str], fix: str) -> None:
    with pytest.raises(WrongSetting, match=fix):
        settings(env)


@pytest.mark.parametrize(
    ("name", "text", "fix"),
    [
        ("push_interval", "soon", r"--push-interval \(PUSH_INTERVAL\) is 'soon': write a duration"),
        ("push_interval", "0", "must be positive"),
        ("poll_interval", "often", "write a duration"),
        ("events_port", "many", "write a whole number"),
        ("events_port", "70000", "write at most 65535"),
        ("enable_log_collector", "yes", "write true or false"),
        ("ray_dashboard_address", "ftp://head", "not the address of a dashboard: 'ftp://head'; use http://host:8265"),
    ],
)
def test_a_malformed_flag_is_refused(name: str, text: str, fix: str) -> None:
    with pytest.raises(WrongSetting, match=fix):
        settings(**{name: text})


@pytest.mark.parametrize(
    ("variable", "text", "field", "default"),
    [
        ("PUSH_INTERVAL", "60", "push_interval", 10),
        ("PUSH_INTERVAL", "0s", "push_interval", 10),
        ("EVENTS_PORT", "abc", "port", 8084),
        ("EVENTS_PORT", "70000", "port", 8084),
        ("LOG_BATCHING", "abc", "log_batching", 0),
        ("ENABLE_EVENT_COLLECTOR", "maybe", "events", True),
        ("ENABLE_LOG_COLLECTOR", "yes", "logs", True),
        ("RAY_COLLECTOR_POLL_INTERVAL", "0", "poll_interval", 30),
        ("RAY_COLLECTOR_POLL_INTERVAL", "often", "poll_interval", 30),
        ("RAY_COLLECTOR_EVENT_MAX_DISK_MB", "much", "spool_bytes", 2**30),
        ("RAY_DASHBOARD_ADDRESS", "tcp://10.0.0.1:8265", "dashboard", "http://localhost:8265"),
        ("RAY_DASHBOARD_ADDRESS", "http://localhost:port", "dashboard", "http://localhost:8265"),
    ],
)
def test_a_malformed_variable_does_not_stop_a_sidecar(
    variable: str, text: str, field: str, default: object, caplog: pytest.LogCaptureFixture
) -> None:
    got = settings({"RAY_CLUSTER_NAME": "c", variable: text})
    assert getattr(got, field) == default
    assert f"{variable} is {text!r}: " in caplog.text


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:9265", "http://localhost:9265"),
        ("demo-head-svc", "http://demo-head-svc:8265"),
        (" https://proxy/ray/ ", "https://proxy/ray"),
    ],
)
def test_the_dashboard_is_named_with_or_without_scheme(text: str, url: str) -> None:
    assert settings({"RAY_CLUSTER_NAME": "c", "RAY_DASHBOARD_ADDRESS": text}).dashboard == url


def test_a_flag_is_used_instead_of_a_malformed_variable() -> None:
    assert settings({"RAY_CLUSTER_NAME": "c", "PUSH_INTERVAL": "60"}, push_interval="7s").push_interval == 7


def test_a_service_named_events_does_not_change_the_port(caplog: pytest.LogCaptureFixture) -> None:
    assert settings({"RAY_CLUSTER_NAME": "c", "EVENTS_PORT": "tcp://10.0.0.1:80"}).port == 8084
    assert caplog.text == ""


def test_every_setting_of_upstream_is_there() -> None:
    flags = {flag for setting in SETTINGS for flag in setting.flags}
    assert flags >= {
        "--role",
        "--ray-cluster-name",
        "--ray-cluster-namespace",
        "--ray-cluster-id",
        "--owner-kind",
        "--owner-name",
        "--ray-dashboard-address",
        "--enable-event-collector",
        "--enable-log-collector",
        "--events-port",
        "--event-data-dir",
        "--event-rotation-interval",
        "--event-max-file-size-mb",
        "--event-max-disk-mb",
        "--event-compression-enabled",
        "--log-batching",
        "--push-interval",
    }
