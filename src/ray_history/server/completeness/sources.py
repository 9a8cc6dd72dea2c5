"""The sources of a session's history, and what is unknown because a source was not stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ray_history.archive.layout import endpoint_name
from ray_history.history.registry import EVENT_FILES, EXPORT_FILES, LOG_FILES, TABLES
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.memo import cached_per_session


@dataclass(frozen=True, slots=True)
class Need:
    """The sources that a listing depends on."""

    any_of: tuple[str, ...]
    """Event types, polled paths or kinds of files; one of them is enough."""
    unknown: str
    """The warning if none of them is stored."""


NEEDS = {table.name: Need(table.sources, table.without_sources) for table in TABLES.values()} | {
    "serve": Need(
        ("/api/serve/applications/",), "Whether Serve ran is unknown: /api/serve/applications/ was not polled."
    )
}


@cached_per_session
def unknown(request: SessionRequest) -> dict[str, str]:
    """The warning for each listing whose sources are missing."""
    stored = _stored(request)
    return {listing: need.unknown for listing, need in NEEDS.items() if stored.isdisjoint(need.any_of)}


def _stored(request: SessionRequest) -> set[str]:
    """The sources of `NEEDS` that are stored."""
    files, manifest = request.open.files, request.open.opened.manifest
    stored = {*manifest.events}
    polled = {name.partition("?")[0].removesuffix("__") for name in files.endpoints}
    wanted = {source for need in NEEDS.values() for source in need.any_of if source.startswith("/")}
    stored |= {url for url in wanted if endpoint_name(url).removesuffix("__") in polled}
    if manifest.sources:
        stored.add(EVENT_FILES)
    if files.whole_logs or files.tail_bundles:
        stored.add(LOG_FILES)
    if request.tables.rows("select 1 from document where source = 'export_event' limit 1"):
        stored.add(EXPORT_FILES)
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
