"""What is kept of the dashboard: a table, the most important first."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from ray_history.archive.layout import endpoint_name

from .answers import ROWS

logger = logging.getLogger(__name__)


class When(Enum):
    ONCE = auto()
    """Until it was stored once in this session."""
    EVERY_POLL = auto()
    PER_JOB = auto()
    """For running jobs at their pace, and once after a job ended."""
    WITH_TRAIN = auto()
    """While jobs run, rarely, and when one ended."""
    PER_NODE = auto()


class Empties(Enum):
    IGNORED = auto()
    """An answer without content is never stored."""
    FIRST = auto()
    """It may be the first answer of its key, but never replaces one."""
    BELIEVED = auto()
    """The third in a row replaces what was full, except in the final poll: users do delete Serve applications."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One answer to keep."""

    url: str
    """As a later reader asks for it, which makes the key; `{}` stands for a job or node id."""
    content: tuple[str, ...] = ()
    """Where in the answer the content stands that makes it full."""
    when: When = When.EVERY_POLL
    empties: Empties = Empties.FIRST
    uncached: bool = False
    """Asked with nocache=1: Ray 2.60 answers these from a cache that is always one poll behind."""
    not_here: frozenset[int] = frozenset()
    """Statuses by which Ray says that the library is not installed or not in use, which is no failure."""
    any_body: bool = False
    """Not known to be JSON."""


JOBS = Endpoint("/api/jobs/")
NODES = Endpoint("/api/v0/nodes?detail=1&limit=10000", ROWS)
DATASETS = Endpoint("/api/data/datasets/{}", ("datasets",), When.PER_JOB, Empties.IGNORED)
TRAIN_V2 = Endpoint(
    "/api/train/v2/runs/v1", ("train_runs",), When.WITH_TRAIN, Empties.IGNORED, not_here=frozenset({500})
)
TRAIN_V1 = replace(TRAIN_V2, url="/api/train/v2/runs")
NODE = Endpoint("/nodes/{}", ("data", "detail", "now"), When.PER_NODE, Empties.IGNORED, uncached=True)

ENDPOINTS = (
    Endpoint("/api/version", when=When.ONCE),
    Endpoint("/api/v0/cluster_metadata", ("data",), When.ONCE),
    Endpoint("/timezone", when=When.ONCE),
    JOBS,
    Endpoint("/api/v0/placement_groups?detail=1&limit=10000", ROWS, empties=Empties.BELIEVED),
    Endpoint("/api/serve/applications/", ("applications",), empties=Empties.BELIEVED, not_here=frozenset({501})),
    DATASETS,
    TRAIN_V2,
    TRAIN_V1,
    NODES,
    Endpoint("/api/v0/workers?detail=1&limit=10000", ROWS),
    Endpoint("/api/cluster_status?format=1", ("data",)),
    Endpoint("/api/cluster_status", ("data",)),
    Endpoint("/nodes?view=summary", ("data", "summary"), uncached=True),
    Endpoint("/api/v0/runtime_envs?detail=1&limit=10000", ROWS),
    Endpoint("/events", ("data", "events"), uncached=True),
    NODE,
)
"""What is kept, the most important first: the final poll gets as far as its time allows."""

_ALIVE = "/api/v0/actors?limit=1&filter_keys=class_name&filter_predicates=%3D&filter_values={}"
_ALIVE += "&filter_keys=state&filter_predicates=%3D&filter_values=ALIVE"
DATA_SIGN = _ALIVE.format("_StatsActor")
TRAIN_SIGN = _ALIVE.format("TrainStateActor")


def with_extras(urls: Iterable[str]) -> tuple[Endpoint, ...]:
    """The built-in endpoints, then the user's own in their order; what has the key of another is left out."""
    found = {endpoint_name(endpoint.url): endpoint for endpoint in ENDPOINTS}
    for url in (url.strip() for url in urls):
        if not url:
            continue
        if "://" in url or not url.isascii() or not url.isprintable() or " " in url:
            # Not fatal, as upstream: a sidecar that does not start would take the head out of its service.
            logger.warning("RAY_COLLECTOR_ADDITIONAL_ENDPOINTS: not a path of the dashboard: %r", url)
            continue
        endpoint = Endpoint("/" + url.lstrip("/"), any_body=True)
        found.setdefault(endpoint_name(endpoint.url), endpoint)
    return tuple(found.values())
