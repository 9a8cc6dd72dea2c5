"""Sessions of which little is known, made from the captured one: without events, with few, and without a shutdown.

The ledgers are those that collectors write in these situations.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import datetime

from ray_history.archive import layout
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.ledger import ANSWERED, UNREACHABLE, EventCounts, Ledger, PolledEndpoint, encode
from ray_history.archive.stores import Store
from ray_history.collector.logs.shipper import EXPORT_GIVEN_UP
from tests.support.captured import Capture, captured, write_archive

SILENT = Cluster("research", "no-events")
"""Ray was not told to send events; logs and the dashboard were recorded."""
SLOW = Cluster("research", "slow-head")
"""The GCS gave up exporting because the agent on the head started slowly: only events about tasks arrived."""
KILLED = Cluster("research", "killed")
"""All processes of Ray were killed at once; the collectors ended in order after that."""
SESSION = captured().session

_SHUTDOWN = b"received SIGTERM"
_BEGAN = datetime.strptime(SESSION[8:27] + "+0000", "%Y-%m-%d_%H-%M-%S%z").timestamp()
_LASTED = 165.0


def write_poor_sessions(store: Store) -> None:
    """Write the three sessions, with their indexes still to be built."""
    whole = captured()
    answered = PolledEndpoint(ANSWERED, since={ANSWERED: _BEGAN + 9})
    gone = PolledEndpoint(UNREACHABLE, "connection refused", {ANSWERED: _BEGAN + 9, UNREACHABLE: _BEGAN + _LASTED})
    _write(store, SILENT, replace(whole, events={}), answered, silent=_BEGAN + 60)
    _write(store, SLOW, _without_gcs_events(whole), answered, export_given_up=_BEGAN + 31)
    _write(store, KILLED, _without_shutdown(whole), gone)


def _write(
    store: Store,
    cluster: Cluster,
    capture: Capture,
    polled: PolledEndpoint,
    *,
    silent: float | None = None,
    export_given_up: float | None = None,
) -> None:
    write_archive(store, Generation.C, cluster, capture=capture)
    heads = {node for node, name in capture.logs if name == "gcs_server.out"}
    for node in {node for node, _ in capture.logs}:
        is_head = node in heads
        events = capture.events.get(node, [])
        types = Counter(json.loads(line)["eventType"] for line in events)
        ledger = Ledger(
            node=node,
            role="head" if is_head else "worker",
            started=_BEGAN,
            written=_BEGAN + _LASTED,
            alive_until=_BEGAN + _LASTED + 60,
            ended="graceful",
            events=EventCounts(received=len(events), stored=len(events), dropped_by_ray=0, types=dict(types)),
            polled={"/api/version": polled, "/api/jobs/": polled} if is_head else {},
            silent=silent if is_head else None,
            export_given_up=export_given_up if is_head else None,
        )
        store.put(layout.ledger_key("", cluster, SESSION, node), encode(ledger))


def _without_gcs_events(capture: Capture) -> Capture:
    events = {
        node: [line for line in lines if "TASK" in json.loads(line)["eventType"]]
        for node, lines in capture.events.items()
    }
    logs = {
        (node, name): body + EXPORT_GIVEN_UP + b"\n" if name == "gcs_server.out" else body
        for (node, name), body in capture.logs.items()
    }
    return replace(capture, events=events, logs=logs)


def _without_shutdown(capture: Capture) -> Capture:
    """Without the last lines of the GCS and of raylets, from the signal to stop on."""
    logs = {
        (node, name): body[: body.rfind(b"\n", 0, body.find(_SHUTDOWN)) + 1]
        if name in ("gcs_server.out", "raylet.out") and _SHUTDOWN in body
        else body
        for (node, name), body in capture.logs.items()
    }
    return replace(capture, logs=logs)
