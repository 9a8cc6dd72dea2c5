"""Leaves out of a query what a session does not have, because planning takes most of a small session's time.

A table has many sources, and most sessions lack several of them: an answer that was not polled, events that their Ray
does not send. A common table expression that has no rows without them is replaced by one without rows and with the same
columns. Those are in columns.json, which `make docs` renews.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

_COLUMNS = Path(__file__).with_name("columns.json")

_SUBMISSIONS = (
    "SUBMISSION_JOB_DEFINITION_EVENT SUBMISSION_JOB_LIFECYCLE_EVENT export_event restful__api__jobs log_event"
)

LATER = "later"
"""What happened after the moment of the query. At the end of time there is nothing."""

NEEDS: Mapping[str, Mapping[str, str]] = {
    "nodes": {
        "definition": "NODE_DEFINITION_EVENT",
        "transition life": "NODE_LIFECYCLE_EVENT",
        "event": "NODE_DEFINITION_EVENT NODE_LIFECYCLE_EVENT",
        "polled": "restful__api__v0__nodes",
        "page": "restful__nodes",
        "raylet": "log_node",
        "later": LATER,
    },
    "workers": {
        "definition": "WORKER_DEFINITION_EVENT",
        "transition life": "WORKER_LIFECYCLE_EVENT",
        "event": "WORKER_DEFINITION_EVENT WORKER_LIFECYCLE_EVENT",
        "driver": "DRIVER_JOB_DEFINITION_EVENT",
        "gone_driver": "DRIVER_JOB_LIFECYCLE_EVENT restful__api__jobs restful__api__v0__workers",
        "polled": "restful__api__v0__workers",
        "page": "restful__nodes",
        "file": "worker_log",
        "later": LATER,
    },
    "actors": {
        "definition": "ACTOR_DEFINITION_EVENT",
        "transition ranked life death": "ACTOR_LIFECYCLE_EVENT",
        "page_row page": "restful__logical__actors restful__nodes",
        "event": "ACTOR_DEFINITION_EVENT ACTOR_LIFECYCLE_EVENT",
        "listing listed": "restful__api__v0__actors",
        "later": LATER,
    },
    "jobs": {
        "definition": "DRIVER_JOB_DEFINITION_EVENT",
        "life": "DRIVER_JOB_LIFECYCLE_EVENT",
        "polled_driver polled_alone": "restful__api__jobs",
        "job_log": "log_event",
        "observation ranked_observation submission": _SUBMISSIONS,
        "command outcome": "command",
    },
    "placement_groups": {
        "definition": "PLACEMENT_GROUP_DEFINITION_EVENT",
        "life": "PLACEMENT_GROUP_LIFECYCLE_EVENT",
        "bundle": "PLACEMENT_GROUP_DEFINITION_EVENT",
        "event": "PLACEMENT_GROUP_DEFINITION_EVENT PLACEMENT_GROUP_LIFECYCLE_EVENT",
        "polled": "restful__api__v0__placement_groups",
    },
    "cluster_events": {
        "logged": "log_event",
        "platform": "PLATFORM_EVENT",
        "event repeated_event": "log_event PLATFORM_EVENT",
    },
    "tasks/polled": {"listed attempt task": "restful__api__v0__tasks"},
}
"""By query, common table expressions that have no rows without any of some kinds of rows (see `kinds_of_rows`)."""

DOCUMENT_KIND = (
    "case source when 'endpoint' then regexp_replace(name, '(__[0-9a-f]{56}|_*([?].*)?)$', '') else source end"
)
"""SQL: the kind of a document."""

_KINDS = f"""
    select distinct event_type from rare_event where event_type is not null
    union
    select distinct {DOCUMENT_KIND} from document
    """


def kinds_of_rows(rows: Callable[[str], Sequence[tuple[Any, ...]]]) -> frozenset[str]:
    """The kinds of rows that a session has: types of events, sources of documents, and names of polled answers without
    ids and parameters. `rows` runs a query on its source tables."""
    return frozenset(kind for (kind,) in rows(_KINDS))


def without(name: str, text: str, kinds: Collection[str]) -> str:
    """A query without the common table expressions that have no rows if there are only rows of these kinds."""
    for expressions, needed in NEEDS.get(name, {}).items():
        if not any(kind in kinds for kind in needed.split()):
            for expression in expressions.split():
                start, end = body_of(expression, text)
                text = text[:start] + _no_rows(name, expression) + text[end:]
    return text


def body_of(expression: str, text: str) -> tuple[int, int]:
    """Where the query of a common table expression is: in our files, up to the next line that begins with `)`."""
    found = re.search(rf"^(?:with )?{expression} as \(\n(.*?)^\)", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise LookupError(f"{expression} is not in the query")
    return found.span(1)


def _no_rows(name: str, expression: str) -> str:
    nulls = ", ".join(f"null::{kind} as {column}" for column, kind in _columns()[name][expression].items())
    return f"select {nulls} where false\n"


@cache
def _columns() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """The types of columns, by query, common table expression, and name."""
    return msgspec.json.decode(_COLUMNS.read_bytes(), type=dict[str, dict[str, dict[str, str]]])
