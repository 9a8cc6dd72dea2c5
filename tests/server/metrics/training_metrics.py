"""Scrapes of an invented cluster that trains on GPUs, for pictures: three nodes, of which one runs out of memory."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.metrics.generated import Cluster, Labels, Scrape

GIB = 1 << 30
_INTERVAL = 15_000
_CORES, _MEMORY, _DISK = 32, 128 * GIB, 900 * GIB


@dataclass(frozen=True)
class _Node:
    address: str
    kind: str
    gpus: int
    loses_memory: bool = False


_NODES = (
    _Node("10.0.4.11:8080", "head", 0),
    _Node("10.0.4.23:8080", "worker", 2),
    _Node("10.0.4.37:8080", "worker", 2, True),
)


def training(session: str, start: int, scrapes: int = 160) -> Cluster:
    """Metrics of the session from `start`, in ms."""
    chance = random.Random(7)
    return Cluster(
        {
            node.address: [
                (start + number * _INTERVAL, _scrape(node, session, number / scrapes, chance))
                for number in range(scrapes)
            ]
            for node in _NODES
        }
    )


def _scrape(node: _Node, session: str, share: float, chance: random.Random) -> Scrape:
    """What a node shows when this share of the session is over."""
    of_session = (("SessionName", session),)
    of_node = (*of_session, ("RayNodeType", node.kind))
    scrape = {(("__name__", name), *of_node): value for name, value in _node_values(node, share, chance)}
    for gpu in range(node.gpus):
        of_gpu = (*of_node, ("GpuIndex", str(gpu)), ("GpuDeviceName", "NVIDIA H200"))
        scrape |= {(("__name__", name), *of_gpu): value for name, value in _gpu_values(share, chance)}
    if node.kind == "head":
        scrape |= {
            (("__name__", name), *of_session, *labels): value for name, labels, value in _cluster_values(share, chance)
        }
    return scrape


def _busy(share: float) -> float:
    """How busy the cluster is: it loads data, trains in two epochs, and evaluates."""
    epochs = 0.85 if 0.15 < share < 0.5 or 0.56 < share < 0.9 else 0.25
    return epochs * min(1.0, share * 12) + 0.06 * math.sin(share * 90)


def _node_values(node: _Node, share: float, chance: random.Random) -> Iterator[tuple[str, float]]:
    busy = _busy(share) if node.kind == "worker" else 0.18 + 0.1 * _busy(share)
    used = 0.16 + 0.34 * busy
    if node.loses_memory and share > 0.5:
        used = min(0.97, used + 1.1 * (share - 0.5))
    sent = busy * 2.2e8 * (0.8 + 0.4 * chance.random())
    yield "ray_node_cpu_utilization", min(100.0, max(1.0, 100 * busy + chance.gauss(0, 3)))
    yield "ray_node_cpu_count", float(_CORES)
    yield "ray_node_mem_used_host", used * _MEMORY + chance.gauss(0, 0.4) * GIB
    yield "ray_node_mem_total_host", float(_MEMORY)
    yield "ray_node_disk_usage", (0.22 + 0.1 * share) * _DISK
    yield "ray_node_disk_free", (0.78 - 0.1 * share) * _DISK
    yield "ray_node_network_receive_speed", sent * 0.9
    yield "ray_node_network_send_speed", sent


def _gpu_values(share: float, chance: random.Random) -> Iterator[tuple[str, float]]:
    busy = _busy(share)
    yield "ray_node_gpus_utilization", min(100.0, max(0.0, 104 * busy + chance.gauss(0, 5)))
    yield "ray_node_gpus_available", 1.0
    yield "ray_node_gram_used", 20_000 + 96_000 * min(1.0, share * 9)
    yield "ray_node_gram_available", 121_000 - 96_000 * min(1.0, share * 9)
    yield "ray_node_gpu_power_milliwatts", 110_000 + 560_000 * busy + chance.gauss(0, 9000)
    yield "ray_node_gpu_temperature_celsius", 34 + 36 * busy + chance.gauss(0, 1)


def _cluster_values(share: float, chance: random.Random) -> Iterator[tuple[str, Labels, float]]:
    workers = 2 if share > 0.04 else 1
    yield "autoscaler_active_nodes", (("NodeType", "gpu-worker"),), float(workers)
    yield "autoscaler_active_nodes", (("NodeType", "head"),), 1.0
    yield (
        "ray_object_store_memory",
        (("Location", "MMAP_SHM"),),
        9 * GIB * max(0.1, _busy(share)) + chance.gauss(0, 0.1) * GIB,
    )
    yield "ray_resources", (("Name", "object_store_memory"),), 38.0 * GIB
    if share > 0.86:
        yield "ray_memory_manager_worker_eviction_total", (("Name", "evaluate"),), float(1 + int(40 * (share - 0.86)))
    for state, count in (("RUNNING", 64 * _busy(share)), ("PENDING_NODE_ASSIGNMENT", 300 * (1 - share))):
        labels = (("State", state), ("Name", "embed"), ("IsRetry", "0"))
        yield "ray_tasks", labels, float(max(0, round(count + chance.gauss(0, 2))))
