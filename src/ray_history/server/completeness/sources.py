"""What a session's history was made from, and what is unknown because nobody kept its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ray_history.archive.layout import endpoint_name
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session


@dataclass(frozen=True, slots=True)
class Need:
    """What some listings depend on."""

    listings: tuple[str, ...]
    any_of: tuple[str, ...]
    """Types of events, polled addresses, or kinds of files; one of them is enough."""
    unknown: str
    """What to say where none is there."""


EVENTS, LOGS, EXPORTED = "event files", "log files", "export files"

NEEDS = (
    Need(("tasks", "actors"), (EVENTS,), "Tasks and actors are unknown: no event files were stored."),
    Need(
        ("nodes",),
        ("NODE_DEFINITION_EVENT", "NODE_LIFECYCLE_EVENT", "/api/v0/nodes"),
        "Nodes are known by their files alone: no events about nodes were stored, and /api/v0/nodes was not polled.",
    ),
    Need(
        ("workers",),
        ("WORKER_DEFINITION_EVENT", "WORKER_LIFECYCLE_EVENT", "/api/v0/workers"),
        "Of workers only drivers are known: no events about workers were stored (Ray sends them from 2.57 on), and "
        "/api/v0/workers was not polled.",
    ),
    Need(
        ("jobs",),
        ("SUBMISSION_JOB_DEFINITION_EVENT", "SUBMISSION_JOB_LIFECYCLE_EVENT", EXPORTED, "/api/jobs/"),
        "Submitted jobs are known by their drivers alone: Ray wrote no export files, and /api/jobs/ was not polled.",
    ),
    Need(
        ("placement_groups",),
        ("PLACEMENT_GROUP_DEFINITION_EVENT", "PLACEMENT_GROUP_LIFECYCLE_EVENT", "/api/v0/placement_groups"),
        "Placement groups are known only as far as tasks and actors name them: /api/v0/placement_groups was not "
        "polled.",
    ),
    Need(
        ("runtime_envs",),
        ("/api/v0/runtime_envs",),
        "Runtime environments are known only as far as tasks ran in them: /api/v0/runtime_envs was not polled.",
    ),
    Need(
        ("cluster_events",),
        (LOGS, "PLATFORM_EVENT"),
        "Cluster events are unknown: they stand in log files, and none were stored.",
    ),
    Need(
        ("serve",),
        ("/api/serve/applications/",),
        "Whether Serve ran is unknown: /api/serve/applications/ was not polled.",
    ),
)


@cached_per_session
def unknown(request: SessionRequest) -> dict[str, str]:
    """What is to be said of each listing whose sources are missing."""
    known = _known(request)
    return {listing: need.unknown for need in NEEDS if known.isdisjoint(need.any_of) for listing in need.listings}


def _known(request: SessionRequest) -> set[str]:
    files, manifest = request.open.files, request.open.opened.manifest
    known = {*manifest.events}
    polled = {name.partition("?")[0].removesuffix("__") for name in files.endpoints}
    wanted = {source for need in NEEDS for source in need.any_of if source.startswith("/")}
    known |= {url for url in wanted if endpoint_name(url).removesuffix("__") in polled}
    if manifest.sources:
        known.add(EVENTS)
    if files.whole_logs or files.tail_bundles:
        known.add(LOGS)
    if request.tables.rows("select 1 from document where source = 'export_event' limit 1"):
        known.add(EXPORTED)
    return known


def sources(request: SessionRequest) -> dict[str, Any]:
    """The sources that there are, for `_completeness`."""
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
