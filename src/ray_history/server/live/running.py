"""A running cluster, and the API server that reports it."""

from __future__ import annotations

from dataclasses import dataclass

from ray_history.archive.catalog import Session
from ray_history.archive.layout import Cluster
from ray_history.kube import Kubernetes, RayCluster

LIVE = "live"
"""The name that stands for the current session of a running cluster."""


@dataclass(frozen=True, slots=True)
class RunningCluster:
    cluster: RayCluster
    kubernetes: Kubernetes

    @property
    def name(self) -> str:
        """`NAMESPACE/NAME`."""
        return f"{self.cluster.namespace}/{self.cluster.name}"

    @property
    def session(self) -> Session:
        """An entry of the catalog for the current session, whatever its name is."""
        found = self.cluster
        cluster = Cluster(found.namespace, found.name, found.owner_kind or "", found.owner_name or "")
        return Session(cluster, LIVE, found.created)
