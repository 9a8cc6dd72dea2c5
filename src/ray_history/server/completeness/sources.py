"""The sources of a session's history, and what is unknown because a source was not stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ray_history.archive.layout import endpoint_name
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session


@dataclass(frozen=True, slots=True)
class Need:
    """The sources that some listings depend on."""

    listings: tuple[str, ...]
    any_of: tuple[str, ...]
    """Event types, polled paths or kinds of files; one of them is enough."""
    unknown: str
    """The warning if none of them is stored."""


EVENTS, LOGS, EXPORTED = "event files", "log files", "export files"

NEEDS = (
    Need(("tasks", "actors"), (EVENTS,), "Tasks and actors are unknown: no event files were stored."),
    Need(
        ("nodes",),
        ("NODE_DEFINITION_EVENT", "NODE_LIFECYCLE_EVENT", "/api/v0/nodes"),
        "Nodes are known from their files alone: no events about nodes were stored, and /api/v0/nodes was not polled.",
    ),
    Need(
        ("workers",),
        ("WORKER_DEFINITION_EVENT", "WORKER_LIFECYCLE_EVENT", "/api/v0/workers"),
        "Of workers only drivers are known: no events about workers were stored (Ray sends them since 2.57), and "
        "/api/v0/workers was not polled.",
    ),
    Need(
        ("jobs",),
        ("SUBMISSION_JOB_DEFINITION_EVENT", "SUBMISSION_JOB_LIFECYCLE_EVENT", EXPORTED, "/api/jobs/"),
        "Submitted jobs are known from their drivers alone: Ray wrote no export files, and /api/jobs/ was not polled.",
    ),
    Need(
        ("placement_groups",),
        ("PLACEMENT_GROUP_DEFINITION_EVENT", "PLACEMENT_GROUP_LIFECYCLE_EVENT", "/api/v0/placement_groups"),
        "Only placement groups that tasks and actors refer to are known: /api/v0/placement_groups was not polled.",
    ),
    Need(
        ("runtime_envs",),
        ("/api/v0/runtime_envs",),
        "Only runtime environments in which tasks ran are known: /api/v0/runtime_envs was not polled.",
    ),
    Need(
        ("cluster_events",),
        (LOGS, "PLATFORM_EVENT"),
        "Cluster events are unknown: they are in log files, and none were stored.",
    ),
    Need(
        ("serve",),
        ("/api/serve/applications/",),
        "Whether Serve ran is unknown: /api/serve/applications/ was not polled.",
    ),
)


@cached_per_session
def unknown(request: SessionRequest) -> dict[str, str]:
    """The warning for each listing whose sources are missing."""
    stored = _stored(request)
    return {listing: need.unknown for need in NEEDS if stored.isdisjoint(need.any_of) for listing in need.listings}


def _stored(request: SessionRequest) -> set[str]:
    """The sources of `NEEDS` that are stored."""
    files, manifest = request.open.files, request.open.opened.manifest
    stored = {*manifest.events}
    polled = {name.partition("?")[0].removesuffix("__") for name in files.endpoints}
    wanted = {source for need in NEEDS for source in need.any_of if source.startswith("/")}
    stored |= {url for url in wanted if endpoint_name(url).removesuffix("__") in polled}
    if manifest.sources:
        stored.add(EVENTS)
    if files.whole_logs or files.tail_bundles:
        stored.add(LOGS)
    if request.tables.rows("select 1 from document where source = 'export_event' limit 1"):
        stored.add(EXPORTED)
    return stored


def sources(request: SessionRequest) -> dict[str, Any]:
    """The stored sources, for `_completeness`."""
    files, manifest = request.open.files, request.open.opened.manifest
    kinds = dict(request.tables.rows("select source, count(*) from document group by all"))
    return {
        "events": {"files": len(manifest.sources), "read": sum(manifest.events.values())},
        "logs": {
            "files": len(files.whole_logs),
            "tail_bundles": len(files.tail_bundles),
            "cluster_events": kinds.get("log_event", 0),
            "export_events": kinds.get("export_event", 0),
        },
        "polled": sorted("/" + name.removeprefix("restful__").replace("__", "/") for name in files.endpoints),
        "ledgers": kinds.get("ledger", 0),
    }
