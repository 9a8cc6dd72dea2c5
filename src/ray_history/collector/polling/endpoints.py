"""The polled endpoints of the dashboard, the most important first."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto

from ray_history.archive.layout import endpoint_name

from .answers import ROWS

logger = logging.getLogger(__name__)


_UNCACHED = "nocache=1"
"""Ray 2.60 has a cache for some endpoints that is always one poll behind."""


class When(Enum):
    ONCE = auto()
    """Until it was stored once in the session."""
    EVERY_POLL = auto()
    WITH_ACTORS = auto()
    """In the first poll, every fourth after it, and the final one, since the answer changes all the time and may be
    large; a small one also when the listing of actors changed."""
    WITHOUT_SPANS = auto()
    """Of a Ray that does not send all profile spans as events: the larger the answer, the rarer."""
    PER_JOB = auto()
    """For running jobs at their own pace, and once after a job ended."""
    WITH_TRAIN = auto()
    """Rarely while jobs run, and after one ended."""
    PER_NODE = auto()


class EmptyAnswers(Enum):
    """When an answer without content is stored."""

    IGNORED = auto()
    """Never."""
    FIRST = auto()
    """If there is no answer yet; it never replaces one."""
    THIRD = auto()
    """The third in a row replaces a full one, except in the final poll: users delete Serve applications, tasks end."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One polled URL."""

    url: str
    """As readers request it, which makes the key; `{}` stands for a job or node id."""
    content: tuple[str, ...] = ()
    """Path of the content in the answer; an answer without it counts as empty."""
    when: When = When.EVERY_POLL
    empty_answers: EmptyAnswers = EmptyAnswers.FIRST
    parameters: str = ""
    """Part of the request, but not of the key."""
    absent_statuses: frozenset[int] = frozenset()
    """Statuses that mean that the library is not installed or not in use, which is not a failure."""
    any_body: bool = False
    """Whether the body may be something other than JSON."""


VERSION = Endpoint("/api/version", when=When.ONCE)
JOBS = Endpoint("/api/jobs/")
NODES = Endpoint("/api/v0/nodes?detail=1&limit=10000", ROWS)
ACTORS = Endpoint("/api/v0/actors?detail=1&limit=10000", ROWS)
"""The second source of actors: their events are missing if Ray's GCS gave up exporting, and before Ray 2.52."""
LOGICAL_ACTORS = Endpoint("/logical/actors", ("data", "actors"), When.WITH_ACTORS, parameters=_UNCACHED)
"""What the listing of actors lacks: worker, port, start and end."""

UNFINISHED_TASKS = Endpoint(
    "/api/v0/tasks?detail=1&limit=1000&unfinished",
    ROWS,
    empty_answers=EmptyAnswers.THIRD,
    # The conditions would make a name of more than 255 bytes, which neither MinIO nor file systems store.
    parameters="&".join(
        f"filter_keys=state&filter_predicates=!%3D&filter_values={state}"
        for state in ("FINISHED", "FAILED", "PENDING_ARGS_AVAIL", "PENDING_NODE_ASSIGNMENT")
    ),
)
"""What a killed worker could not send any more: RUNNING, pid and place in the logs. Without tasks that wait, of which
there may be very many: their owners send what is known of them."""

ALL_TASKS = Endpoint("/api/v0/tasks?detail=1&limit=10000&exclude_driver=false", ROWS, When.WITHOUT_SPANS)
SPANS_SINCE = (2, 55)
"""The first Ray that sends all profile spans: 2.49 sends none, 2.52 to 2.54 only the outermost."""

DATASETS = Endpoint("/api/data/datasets/{}", ("datasets",), When.PER_JOB, EmptyAnswers.IGNORED)
TRAIN_V2 = Endpoint(
    "/api/train/v2/runs/v1", ("train_runs",), When.WITH_TRAIN, EmptyAnswers.IGNORED, absent_statuses=frozenset({500})
)
TRAIN_V1 = replace(TRAIN_V2, url="/api/train/v2/runs")
NODE = Endpoint("/nodes/{}", ("data", "detail", "now"), When.PER_NODE, EmptyAnswers.IGNORED, parameters=_UNCACHED)

ENDPOINTS = (
    VERSION,
    Endpoint("/api/v0/cluster_metadata", ("data",), When.ONCE),
    Endpoint("/timezone", when=When.ONCE),
    JOBS,
    Endpoint("/api/v0/placement_groups?detail=1&limit=10000", ROWS, empty_answers=EmptyAnswers.THIRD),
    Endpoint(
        "/api/serve/applications/",
        ("applications",),
        empty_answers=EmptyAnswers.THIRD,
        absent_statuses=frozenset({501}),
    ),
    DATASETS,
    TRAIN_V2,
    TRAIN_V1,
    NODES,
    ACTORS,
    Endpoint("/api/v0/workers?detail=1&limit=10000", ROWS),
    Endpoint("/api/cluster_status?format=1", ("data",)),
    Endpoint("/api/cluster_status", ("data",)),
    Endpoint("/nodes?view=summary", ("data", "summary"), parameters=_UNCACHED),
    Endpoint("/api/v0/runtime_envs?detail=1&limit=10000", ROWS),
    UNFINISHED_TASKS,
    LOGICAL_ACTORS,
    ALL_TASKS,
    Endpoint("/events", ("data", "events"), parameters=_UNCACHED),
    NODE,
)
"""The most important first: the final poll may not have time for all."""

_ALIVE = "/api/v0/actors?limit=1&filter_keys=class_name&filter_predicates=%3D&filter_values={}"
_ALIVE += "&filter_keys=state&filter_predicates=%3D&filter_values=ALIVE"
DATA_ACTOR = _ALIVE.format("_StatsActor")
TRAIN_ACTOR = _ALIVE.format("TrainStateActor")


def with_extras(urls: Iterable[str]) -> tuple[Endpoint, ...]:
    """The built-in endpoints, then the user's own in their order, without duplicate keys."""
    found = {endpoint_name(endpoint.url): endpoint for endpoint in ENDPOINTS}
    for url in (url.strip() for url in urls):
        if not url:
            continue
        if "://" in url or not url.isascii() or not url.isprintable() or " " in url:
            # Not fatal, as upstream: a sidecar that does not start would make the head unavailable.
            logger.warning("RAY_COLLECTOR_ADDITIONAL_ENDPOINTS: not a path of the dashboard: %r", url)
            continue
        endpoint = Endpoint("/" + url.lstrip("/"), any_body=True)
        found.setdefault(endpoint_name(endpoint.url), endpoint)
    return tuple(found.values())
