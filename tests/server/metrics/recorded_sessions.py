"""Sessions with recorded metrics that tests write into an archive."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from ray_history.archive import layout
from ray_history.archive.layout import Cluster, MetricBlockKey
from ray_history.archive.stores import Store
from ray_history.metrics.dashboards import pack
from tests.history.rebuilt import NODE
from tests.metrics import generated
from tests.metrics.dashboards import dashboards
from tests.server.ui.written_sessions import SESSION, end_long_ago, ran, write_session

OWNER = Cluster("default", "written")
PATH = f"/s/default/written/{SESSION}"


def write_metrics(store: Store, cluster: generated.Cluster, owner: Cluster = OWNER, session: str = SESSION) -> None:
    """Store the blocks of an invented cluster: each instance is a node."""
    for instance, scrapes in cluster.scrapes.items():
        node = NODE if instance == generated.INSTANCES[0] else instance.replace(":", "-")
        for block in generated.blocks(instance, scrapes):
            key = MetricBlockKey(node, "agent", block.first)
            store.put(layout.metric_block_key("", owner, session, key), block.encode())


def write_recorded(folder: Path, cluster: generated.Cluster) -> Store:
    """An ended session with metrics."""
    store = write_session(folder, ran(1, "work", generated.START / 1000, generated.START / 1000 + 5))
    write_metrics(store, cluster)
    end_long_ago(folder)
    return store


def write_dashboards(store: Store, version: str, owner: Cluster = OWNER, session: str = SESSION) -> None:
    """Store the dashboards that the head of a Ray of this version writes."""
    files = {name: json.dumps(dashboard).encode() for name, dashboard in dashboards(version).items()}
    store.put(layout.metric_dashboards_key("", owner, session), pack(files))


def write_charted(folder: Path, cluster: generated.Cluster, version: str = "2.60") -> Store:
    """An ended session with metrics, whose labels name it, and with dashboards."""
    store = write_recorded(folder, named(cluster, SESSION))
    write_dashboards(store, version)
    end_long_ago(folder)
    return store


def named(cluster: generated.Cluster, session: str) -> generated.Cluster:
    """The same samples in another session."""
    scrapes = {
        instance: [
            (time, {_named(labels, session): value for labels, value in scrape.items()}) for time, scrape in found
        ]
        for instance, found in cluster.scrapes.items()
    }
    return replace(cluster, scrapes=scrapes)


def _named(labels: generated.Labels, session: str) -> generated.Labels:
    return tuple((name, session if name == "SessionName" else value) for name, value in labels)
