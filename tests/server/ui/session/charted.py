"""A session with metrics in which memory ran full: two nodes, one of which is lost."""

from __future__ import annotations

import math
from pathlib import Path

from ray_history.archive import layout
from ray_history.archive.layout import MetricBlockKey
from ray_history.archive.stores import Store
from ray_history.metrics.block import OpenBlock
from tests.history.rebuilt import NODE, OTHER_NODE, job, job_life, ms, node, node_life
from tests.server.metrics.recorded_sessions import OWNER
from tests.server.ui.written_sessions import SESSION, end_long_ago, failed, ran, write_session

LENGTH = 600
"""Seconds."""
FAILED_AT = 403
"""The memory of the worker was scraped 8 seconds before."""
LOST_AT = 450
TARGETS = {NODE: "192.0.2.2:8080", OTHER_NODE: "192.0.2.3:8080"}


def write_charted(folder: Path, *, memory: float = 0.97, gpus: bool = True) -> Store:
    """`memory` is the share that the worker uses shortly before a task fails there."""
    store = write_session(
        folder,
        [
            node(NODE, 0),
            node_life("ALIVE", 0, isHeadNode=True),
            node(OTHER_NODE, 5, nodeName="worker 2", nodeIpAddress="192.0.2.3"),
            node_life("ALIVE", 5, OTHER_NODE),
            job(at=10, submission="train"),
            job_life("CREATED", 10),
            *ran(1, "load", 20, 200),
            *failed(2, "score", 210, FAILED_AT, "out of memory", "OUT_OF_MEMORY", node=OTHER_NODE),
            node_life(
                "DEAD", LOST_AT, OTHER_NODE, deathInfo={"reason": "UNEXPECTED_TERMINATION", "reasonMessage": "x"}
            ),
            *ran(3, "rest", 460, LENGTH),
        ],
    )
    for number, (node_id, target) in enumerate(TARGETS.items()):
        end = LENGTH if node_id == NODE else FAILED_AT + 10
        block = OpenBlock(target)
        for time in range(number * 5, end, 15):
            share = 0.3 if node_id == NODE else min(memory, 0.2 + time / 400)
            block.add(ms(time), lines(share, time, gpus=gpus and node_id != NODE))
        key = MetricBlockKey(node_id, "agent", block.first)
        store.put(layout.metric_block_key("", OWNER, SESSION, key), block.encode())
    end_long_ago(folder)
    return store


def lines(memory: float, time: int, *, gpus: bool) -> list[str]:
    """A scrape of an agent."""
    total = 8_000_000_000
    found = [
        f"ray_node_mem_used {memory * total}",
        f"ray_node_mem_total {total}",
        f"ray_node_cpu_utilization {50 + 40 * math.sin(time / 40):.1f}",
        f'ray_object_store_memory{{Location="MMAP_SHM"}} {time * 1_000_000}',
        f'ray_object_store_memory{{Location="SPILLED"}} {max(0, time - 300) * 2_000_000}',
        f'ray_tasks{{State="RUNNING",Name="score"}} {time // 60}',
        f'ray_tasks{{State="PENDING_NODE_ASSIGNMENT",Name="score"}} {20 - time // 60}',
        f"ray_node_network_receive_speed {1e6 * (time % 90)}",
        f"ray_node_network_send_speed {5e5 * (time % 45)}",
    ]
    for gpu in range(2) if gpus else ():
        found += [
            f'ray_node_gpus_utilization{{GpuIndex="{gpu}"}} {90 - gpu * 30}',
            f'ray_node_gram_used{{GpuIndex="{gpu}"}} {time * 10}',
            f'ray_node_gram_available{{GpuIndex="{gpu}"}} {8_000 - time * 10}',
        ]
    return found
