"""Sessions with recorded metrics that tests write into an archive."""

from __future__ import annotations

from pathlib import Path

from ray_history.archive import layout
from ray_history.archive.layout import Cluster, MetricBlockKey
from ray_history.archive.stores import Store
from tests.history.rebuilt import NODE
from tests.metrics import generated
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
