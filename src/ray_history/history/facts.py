"""Facts: what is known of a session as a whole, one row made by `sql/facts.sql`, in its index and in its summary."""

from __future__ import annotations

import msgspec

from ray_history.bounds import Amount, Count, Moment, MomentNs, Name, Text


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """None is unknown: not recorded, outside of its range, or not there yet in the index of an earlier version."""

    ray_version: Name | None = None
    ray_commit: Name | None = None
    python_version: Name | None = None
    os: Name | None = None
    timezone: Name | None = None
    cluster_id: Name | None = None
    start_ns: MomentNs | None = None
    last_ns: MomentNs | None = None
    shutdown: Text | None = None
    """The line that reports a signal to stop; empty if the logs of the head have none."""
    lost_dashboard: Count | None = None
    """1 if the dashboard was gone while the collector still ran."""
    ended: Name | None = None
    """How the collectors ended: `graceful`, `partly graceful`, `left` (Ray ran on) or `lost`."""
    collectors: Count | None = None
    last_written: Moment | None = None
    alive_until: Moment | None = None
    """When the next heartbeat was due."""
    events_received: Count | None = None
    events_stored: Count | None = None
    events_quarantined: Count | None = None
    events_dropped_by_ray: Count | None = None
    log_bytes_lost: Count | None = None
    imported: Moment | None = None
    """When the session was imported from its directory, because no collector recorded it."""
    command: Text | None = None
    """The command of `ray-history run` that was recorded."""
    exit_code: Count | None = None
    exit_signal: Name | None = None
    """The signal that ended it, such as SIGKILL."""
    stopped_by: Name | None = None
    """The signal that its user sent to it."""
    nodes: Count | None = None
    nodes_with_files: Count | None = None
    nodes_without_files: Count | None = None
    cpus: Amount | None = None
    gpus: Amount | None = None
    actors: Count | None = None
    jobs: Count | None = None
    tasks: Count | None = None
    failed_tasks: Count | None = None
    tasks_with_most_spans: Count | None = None
