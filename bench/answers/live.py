"""Live clusters for the comparison: stand-ins for the API server of Kubernetes and for the head of a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.answers.archive import Target
from ray_history.archive.layout import Cluster
from tests.server.live.head_stand_in import HeadStandIn
from tests.support.captured import captured
from tests.support.kube_stand_in import KubeStandIn, ray_cluster

ANSWERS = {
    "/api/v0/tasks": "v0_tasks",
    "/api/v0/actors": "v0_actors",
    "/api/v0/runtime_envs": "v0_runtime_envs",
    "/api/v0/tasks/summarize": "tasks_summarize",
    "/api/jobs/": "jobs",
    "/logical/actors": "logical_actors",
    "/nodes": "nodes_summary",
    "/api/cluster_status": "cluster_status",
    "/api/serve/applications/": "serve_applications",
}
"""What the head answers: the captured answers of a real one."""

TARGETS = [
    Target(Cluster("states", "running"), "live"),
    Target(Cluster("states", "silent"), "live"),
    Target(Cluster("states", "ended"), "live"),
    Target(Cluster("states", "nothing"), "live"),
]
"""A cluster whose head responds, one whose head does not, one that is deleted but archived, and an unknown one."""


@contextmanager
def running_clusters(folder: Path) -> Iterator[Sequence[str]]:
    """The options with which a server finds the clusters."""
    with KubeStandIn().running() as kube, HeadStandIn().running() as head:
        for path, name in ANSWERS.items():
            body = json.dumps(captured().truth[name]).encode()
            head.answers[path] = (200, {"Content-Type": "application/json"}, body)
        head.answers["/api/v0/nodes"] = (500, {"Content-Type": "text/plain"}, b"the head failed")
        kube.backends["states", "running-head-svc"] = head.address
        kube.backends["states", "silent-head-svc"] = ""
        for name in ("running", "silent"):
            kube.put("RayCluster", ray_cluster("states", name))
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(kube.kubeconfig())
        yield ("--kube", "on", "--kubeconfigs", str(kubeconfig), "--use-kubernetes-proxy", "true")
