"""The sources of a session's history, and what is unknown because a source was not stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ray_history.archive.ledger import FAILED, NEVER_ASKED, REFUSED, TIMED_OUT, UNREACHABLE
from ray_history.history.registry import EVENT_FILES, EXPORT_FILES, LOG_FILES, TABLES, minor_version
from ray_history.ray_variables import EXPOSABLE_EVENT_TYPES
from ray_history.server.completeness.polls import age, cut, is_answer, polled_attempts
from ray_history.server.formatting import clip, plural
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


@dataclass(frozen=True, slots=True)
class Expected:
    """Event types of which Ray sends some if there was anything to report."""

    types: tuple[str, ...]
    because: str
    """SQL: finds rows if there was something to report."""


_TASK_TYPES = ("TASK_DEFINITION_EVENT", "ACTOR_TASK_DEFINITION_EVENT", "TASK_LIFECYCLE_EVENT", "TASK_EXECUTION_EVENT")
EXPECTED = {
    "tasks": Expected(_TASK_TYPES, "select 1 from rare_event where event_type like 'DRIVER_JOB_%' limit 1"),
    "actors": Expected(
        ("ACTOR_DEFINITION_EVENT", "ACTOR_LIFECYCLE_EVENT"),
        "select 1 from observed_tasks where type in ('ACTOR_CREATION_TASK', 'ACTOR_TASK') limit 1",
    ),
    "jobs": Expected(
        ("DRIVER_JOB_DEFINITION_EVENT", "DRIVER_JOB_LIFECYCLE_EVENT"), "select 1 from observed_tasks limit 1"
    ),
    "nodes": Expected(("NODE_DEFINITION_EVENT", "NODE_LIFECYCLE_EVENT"), "select 1"),
    "timeline": Expected(("TASK_PROFILE_EVENT",), "select 1 from observed_tasks where running_ns is not null limit 1"),
}


_OF_THE_GCS = ("actors", "jobs", "nodes")
"""Listings whose events the GCS sends; workers send those about tasks."""
_ONLY_TASKS_BEFORE = (2, 50)
"""The first Ray with events about anything but tasks, and with profile events."""


@cached_per_session
def unknown(request: SessionRequest) -> dict[str, str]:
    """What to know about each listing whose sources are missing, or were stored in part, or are as old as a poll."""
    # Ray's clients raise an error at each warning, and a task that a poll completed is not missing.
    tasks = " ".join(filter(None, (_unfinished(request), missing(request).get("tasks"))))
    return missing(request) | ({"tasks": tasks} if tasks else {})


@cached_per_session
def missing(request: SessionRequest) -> dict[str, str]:
    """The warning for each listing in which something is missing because of its sources."""
    stored = _stored(request)
    has_events = any(request.open.opened.manifest.events.values())
    warnings = dict[str, str]()
    for listing in dict.fromkeys((*NEEDS, *EXPECTED)):
        expected, need = EXPECTED.get(listing), NEEDS.get(listing)
        parts = []
        if expected and stored.isdisjoint(expected.types):
            if not has_events:
                parts.append(_from_polls(request, listing))
            elif request.tables.rows(expected.because):
                parts.append(_not_exported(request, listing, expected.types))
        if need and stored.isdisjoint(need.any_of):
            parts.append(_with_outcomes(request, need))
        parts.append(cut(request).get(listing, ""))
        if any(parts):
            warnings[listing] = " ".join(filter(None, parts))
    return warnings


def _with_outcomes(request: SessionRequest, need: Need) -> str:
    """The warning, with what the ledgers say about requests to the dashboard."""
    if need.any_of == TABLES["tasks"].sources and (polled := age(request, [TABLES["tasks"].path])):
        return f"No event files were stored: only tasks in the dashboard's list are known ({polled})."
    asked = {url: each for ledger in request.open.ledgers.values() for url, each in ledger.polled.items()}
    text = need.unknown
    for path in need.any_of:
        answers = [each for url, each in asked.items() if url.partition("?")[0] == path]
        if answers and answers[0].outcome in _OUTCOMES:
            said = _OUTCOMES[answers[0].outcome].format(path=path, detail=clip(answers[0].detail, 200))
            text = text.replace(f"{path} was not polled", said)
    return text


_OUTCOMES = {
    REFUSED: "the dashboard refused {path} ({detail}): set RAY_AUTH_TOKEN for the collector",
    TIMED_OUT: "the dashboard did not answer {path} in time",
    UNREACHABLE: "the dashboard could not be reached for {path} ({detail})",
    FAILED: "the dashboard answered {path} with an error ({detail})",
    NEVER_ASKED: "the dashboard was never asked for {path}",
}


def _not_exported(request: SessionRequest, listing: str, types: tuple[str, ...]) -> str:
    """Ray sent events, but none of these types."""
    version = minor_version(request.open.facts.ray_version)
    if listing != "tasks" and version is not None and version < _ONLY_TASKS_BEFORE:
        why, mend = f"not exported by Ray {version[0]}.{version[1]}", ""
    elif listing in _OF_THE_GCS and any(ledger.export_given_up for ledger in request.open.ledgers.values()):
        why, mend = "not exported by Ray", ""
    else:
        why, mend = "not exported by Ray", f" {EXPOSABLE_EVENT_TYPES} has to name {' and '.join(types)}."
    if listing == "timeline":
        return f"Timeline: profile events were {why}{';' + mend if mend else '.'}"
    polled = age(request, TABLES[listing].polled)
    instead = f"; shown from the dashboard's last answer ({polled})" if polled else ""
    return f"{listing.capitalize()}: {why}{instead}.{mend}"


def _from_polls(request: SessionRequest, listing: str) -> str:
    """Ray sent no event at all."""
    polled = age(request, TABLES[listing].polled) if listing in TABLES else ""
    return f"{listing.capitalize()}: shown from the dashboard's last answer ({polled})." if polled else ""


def _unfinished(request: SessionRequest) -> str:
    """The events of some tasks lack what the dashboard's list of tasks has."""
    number, polled = polled_attempts(request), age(request, [TABLES["tasks"].path])
    if not number:
        return ""
    return (
        f"What no event reports of {plural(number, 'attempt')} of tasks is shown from the dashboard's list of "
        f"tasks ({polled})."
    )


def _stored(request: SessionRequest) -> set[str]:
    """The sources of `NEEDS` that are stored."""
    files, manifest = request.open.files, request.open.opened.manifest
    stored = {kind for kind, number in manifest.events.items() if number}
    wanted = {source for need in NEEDS.values() for source in need.any_of if source.startswith("/")}
    stored |= {path for path in wanted if any(is_answer(name, path) for name in files.endpoints)}
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
