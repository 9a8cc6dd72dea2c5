"""The collector's settings: one table for flags, environment variables and documentation.

The names, old and new, are KubeRay's; the environment wins over flags, as upstream. A malformed variable causes a
warning and counts as absent, as upstream: a sidecar that exits takes the head out of its Service. A malformed flag is
refused.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ray_history.archive.layout import Cluster
from ray_history.archive.names import InvalidName, dns_name
from ray_history.setting import is_service_link

logger = logging.getLogger(__name__)

Kind = Literal["text", "boolean", "number", "duration", "address", "pattern"]

_TRUE = {"1", "t", "T", "TRUE", "true", "True"}
_FALSE = {"0", "f", "F", "FALSE", "false", "False"}
_DURATION_PART = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)(ns|us|µs|ms|s|m|h)")
_UNIT = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class WrongSetting(ValueError):
    """An invalid setting; the message says which one and how to write it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its flags (the first is documented), variable, default and help."""

    flags: tuple[str, ...]
    variable: str
    kind: Kind
    default: str
    help: str
    positive: bool = False
    maximum: int = 999_999_999

    @property
    def name(self) -> str:
        return self.flags[0].lstrip("-").replace("-", "_") if self.flags else self.variable.lower()


SETTINGS = (
    Setting(
        ("--role",), "RAY_ROLE", "text", "Worker", "Head or Worker; on the head the collector also polls the dashboard."
    ),
    Setting(("--cluster", "--ray-cluster-name"), "RAY_CLUSTER_NAME", "text", "", "Name of the Ray cluster."),
    Setting(
        ("--namespace", "--ray-cluster-namespace", "--ray-cluster-id"),
        "RAY_CLUSTER_NAMESPACE",
        "text",
        "default",
        "Namespace of the Ray cluster.",
    ),
    Setting(("--owner-kind",), "OWNER_KIND", "text", "", "rayjob or rayservice, if one of them owns the cluster."),
    Setting(("--owner-name",), "OWNER_NAME", "text", "", "Name of the RayJob or RayService."),
    Setting(("--node-id",), "RAY_NODE_ID", "text", "", "Ray node id in hex; read from Ray's files if not given."),
    Setting(("--ray-tmp-root",), "RAY_TMP_ROOT", "text", "/tmp/ray", "Ray's temporary directory."),  # noqa: S108
    Setting(
        ("--session-dir",), "RAY_SESSION_DIR", "text", "", "Session directory to follow instead of session_latest."
    ),
    Setting(
        ("--ray-dashboard-address",),
        "RAY_DASHBOARD_ADDRESS",
        "address",
        "http://localhost:8265",
        "Dashboard that the collector of the head polls.",
    ),
    Setting(("--enable-event-collector",), "ENABLE_EVENT_COLLECTOR", "boolean", "true", "Receive and store events."),
    Setting(
        ("--enable-log-collector",),
        "ENABLE_LOG_COLLECTOR",
        "boolean",
        "true",
        "Store log files and poll the dashboard.",
    ),
    Setting(("--events-port",), "EVENTS_PORT", "number", "8084", "Port to which Ray posts its events.", maximum=65535),
    Setting(
        ("--events-host",),
        "EVENTS_HOST",
        "text",
        "127.0.0.1",
        "Address to listen on. The endpoint has no authentication; loopback is sufficient inside a pod.",
    ),
    Setting(
        ("--event-data-dir",),
        "RAY_COLLECTOR_EVENT_DATA_DIR",
        "text",
        "",
        "Directory of the spool and the log positions; <ray-tmp-root>/event-data if not given.",
    ),
    Setting(
        ("--event-rotation-interval",),
        "RAY_COLLECTOR_EVENT_ROTATION_INTERVAL",
        "duration",
        "0s",
        "Write event files at least this often. 0s means every push interval, or every six while journals have the few "
        "events that arrive.",
    ),
    Setting(
        ("--event-journal-interval",),
        "RAY_COLLECTOR_EVENT_JOURNAL_INTERVAL",
        "duration",
        "2s",
        "Interval of copying events that wait for their upload to the archive, in case that the pod and its volume are "
        "lost together; 0s disables it.",
    ),
    Setting(
        ("--event-max-file-size-mb",),
        "RAY_COLLECTOR_EVENT_MAX_FILE_SIZE_MB",
        "number",
        "4",
        "Maximum size in MiB of an event file before compression; it is held in memory during the upload.",
    ),
    Setting(
        ("--event-max-disk-mb",),
        "RAY_COLLECTOR_EVENT_MAX_DISK_MB",
        "number",
        "1024",
        "Maximum size of the spool in MiB. When it is full because uploads fail, Ray is asked to retry later.",
    ),
    Setting(
        ("--event-max-body-mb",),
        "RAY_COLLECTOR_EVENT_MAX_BODY_MB",
        "number",
        "64",
        "Maximum size in MiB of a posted batch, which holds up to 1,000 events (10,000 in older versions of Ray).",
    ),
    Setting(
        ("--event-compression-enabled",),
        "RAY_COLLECTOR_EVENT_COMPRESSION_ENABLED",
        "boolean",
        "true",
        "Compress event files with gzip.",
    ),
    Setting(
        ("--log-batching",),
        "LOG_BATCHING",
        "number",
        "0",
        "Number of new log lines that triggers an upload before the push interval ends; 0 disables it.",
    ),
    Setting(
        ("--push-interval",),
        "PUSH_INTERVAL",
        "duration",
        "10s",
        "Interval of uploads of new events and log lines.",
        positive=True,
    ),
    Setting(
        ("--poll-interval",),
        "RAY_COLLECTOR_POLL_INTERVAL",
        "duration",
        "30s",
        "Interval of polling the dashboard (head only).",
        positive=True,
    ),
    Setting(
        ("--metrics-interval",),
        "RAY_COLLECTOR_METRICS_INTERVAL",
        "duration",
        "15s",
        "Interval of scraping the node's metrics; 0s disables it.",
    ),
    Setting(
        ("--metrics-keep",),
        "RAY_COLLECTOR_METRICS_KEEP",
        "pattern",
        "all",
        "Metrics to store: all, panels (those of Ray's Grafana dashboards), or a regular expression for whole names.",
    ),
    Setting(
        ("--additional-endpoints",),
        "RAY_COLLECTOR_ADDITIONAL_ENDPOINTS",
        "text",
        "",
        "Additional dashboard paths to poll, separated by commas (head only).",
    ),
    Setting(
        ("--shutdown-grace",),
        "RAY_COLLECTOR_SHUTDOWN_GRACE",
        "duration",
        "25s",
        "Time for the last uploads after SIGTERM; Kubernetes sends SIGKILL after 30 s by default.",
        positive=True,
    ),
)


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """The validated settings."""

    cluster: Cluster
    head: bool
    node_id: str | None
    ray_root: Path
    session_dir: Path | None
    dashboard: str
    events: bool
    logs: bool
    host: str
    port: int
    data_dir: Path
    push_interval: float
    events_interval: float
    few_events_interval: float
    """The interval while journals have the few events that arrive."""
    journal_interval: float
    segment_bytes: int
    spool_bytes: int
    body_bytes: int
    compress: bool
    log_batching: int
    poll_interval: float
    endpoints: tuple[str, ...]
    metrics_interval: float
    metrics_keep: str
    shutdown_grace: float


def resolve(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> CollectorSettings:
    """The settings from flags (by setting name) and environment."""
    values = {setting.name: _value(setting, flags.get(setting.name), environ) for setting in SETTINGS}
    role = str(values["role"]).strip().lower()
    if role not in ("head", "worker"):
        raise WrongSetting(f"--role (RAY_ROLE) is {values['role']!r}: use Head or Worker")
    if not values["enable_event_collector"] and not values["enable_log_collector"]:
        raise WrongSetting("both --enable-event-collector and --enable-log-collector are false: nothing to collect")
    ray_root = Path(values["ray_tmp_root"])
    push = values["push_interval"]
    return CollectorSettings(
        cluster=_cluster(values),
        head=role == "head",
        node_id=_node_id(values["node_id"]),
        ray_root=ray_root,
        session_dir=Path(values["session_dir"]) if values["session_dir"] else None,
        dashboard=values["ray_dashboard_address"],
        events=values["enable_event_collector"],
        logs=values["enable_log_collector"],
        host=values["events_host"],
        port=int(values["events_port"]),
        data_dir=Path(values["event_data_dir"] or ray_root / "event-data"),
        push_interval=push,
        events_interval=values["event_rotation_interval"] or push,
        few_events_interval=_few_events_interval(values),
        journal_interval=values["event_journal_interval"],
        segment_bytes=max(1, int(values["event_max_file_size_mb"])) * 2**20,
        spool_bytes=max(1, int(values["event_max_disk_mb"])) * 2**20,
        body_bytes=max(1, int(values["event_max_body_mb"])) * 2**20,
        compress=values["event_compression_enabled"],
        log_batching=int(values["log_batching"]),
        poll_interval=values["poll_interval"],
        endpoints=tuple(part.strip() for part in values["additional_endpoints"].split(",") if part.strip()),
        metrics_interval=values["metrics_interval"],
        metrics_keep=values["metrics_keep"],
        shutdown_grace=values["shutdown_grace"],
    )


def _few_events_interval(values: Mapping[str, Any]) -> float:
    if values["event_rotation_interval"]:
        return float(values["event_rotation_interval"])
    return float(values["push_interval"]) * (6 if values["event_journal_interval"] else 1)


def _value(setting: Setting, flag: str | None, environ: Mapping[str, str]) -> Any:
    text = environ.get(setting.variable)
    if text and not is_service_link(setting.variable, text):
        try:
            return _parsed(setting, text)
        except ValueError as error:
            fallback = flag or setting.default
            logger.warning("%s is %r: %s; using %s", setting.variable, text, error, fallback)
    text = flag or setting.default
    try:
        return _parsed(setting, text)
    except ValueError as error:
        raise WrongSetting(f"{setting.flags[0]} ({setting.variable}) is {text!r}: {error}") from error


def _parsed(setting: Setting, text: str) -> Any:
    match setting.kind:
        case "text":
            return text.strip()
        case "number":
            if not re.fullmatch(r"\d{1,9}", text.strip(), re.ASCII):
                raise ValueError("write a whole number")
            if int(text) > setting.maximum:
                raise ValueError(f"write at most {setting.maximum}")
            return int(text)
        case "boolean":
            if text not in _TRUE | _FALSE:
                raise ValueError("write true or false")
            return text in _TRUE
        case "duration":
            seconds = parse_duration(text.strip())
            if setting.positive and seconds <= 0:
                raise ValueError("it must be positive, such as 10s")
            return seconds
        case "address":
            return _address(text.strip())
        case "pattern":
            return _pattern(text.strip())


def _address(text: str) -> str:
    from .polling.dashboard_client import Dashboard, Misconfigured, dashboard_url  # `--help` does not need a client

    url = text if "://" in text else dashboard_url(text)
    try:
        return Dashboard(url, lambda: None).base_url
    except Misconfigured as error:
        raise ValueError(str(error)) from error


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"write a regular expression ({error})") from error
    return text


def parse_duration(text: str) -> float:
    """Seconds in a Go duration such as `300ms`, `1m30s` or `1h`."""
    if text == "0":
        return 0.0
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("write a duration such as 10s, 1m30s or 300ms")
    return sum(float(number) * _UNIT[unit] for number, unit in parts)


def _node_id(text: str) -> str | None:
    if text and not re.fullmatch(r"[0-9a-fA-F]{8,64}", text):
        raise WrongSetting(f"--node-id (RAY_NODE_ID) is {text!r}: write the node's id in hex, as `ray list nodes` does")
    return text.lower() or None


def _cluster(values: Mapping[str, Any]) -> Cluster:
    if not values["cluster"]:
        raise WrongSetting("no cluster name given: use --cluster NAME or set RAY_CLUSTER_NAME")
    kind, owner = values["owner_kind"].lower(), values["owner_name"]
    if kind not in ("", "rayjob", "rayservice"):
        raise WrongSetting(f"--owner-kind (OWNER_KIND) is {kind!r}: use rayjob or rayservice")
    if bool(kind) != bool(owner):
        raise WrongSetting("--owner-kind (OWNER_KIND) and --owner-name (OWNER_NAME) must be given together")
    try:
        return Cluster(
            dns_name(values["namespace"], "namespace"),
            dns_name(values["cluster"], "cluster"),
            kind,
            dns_name(owner, "owner name") if owner else "",
        )
    except InvalidName as error:
        raise WrongSetting(str(error)) from error
