"""`--auth kubernetes` with the tokens and roles of a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.kube import Kubernetes, from_kubeconfig, resource_path
from ray_history.server.auth.credentials import TrustedPeers
from ray_history.server.auth.kubernetes import KubernetesTokens, parse_access
from tests.kube.world import World, real_world
from tests.server.auth.people import SESSION, asking, bearer
from tests.support.captured import write_archive

pytestmark = pytest.mark.timeout(180)
RBAC = "rbac.authorization.k8s.io"


def create(world: World, group_version: str, plural: str, body: dict[str, Any], *more: str) -> dict[str, Any]:
    path = resource_path(group_version, plural, world.namespace, *more)
    made: dict[str, Any] = world.ask(lambda kubernetes: kubernetes._answer("POST", path, body=body))
    return made


def token_of(world: World, name: str) -> str:
    """The token of a new service account."""
    create(world, "v1", "serviceaccounts", {"metadata": {"name": name}})
    token: str = create(world, "v1", "serviceaccounts", {"spec": {}}, name, "token")["status"]["token"]
    return token


def let_see(world: World, name: str) -> None:
    rule = {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get"]}
    create(world, f"{RBAC}/v1", "roles", {"metadata": {"name": "see"}, "rules": [rule]})
    role = {"apiGroup": RBAC, "kind": "Role", "name": "see"}
    who = {"kind": "ServiceAccount", "name": name, "namespace": world.namespace}
    create(world, f"{RBAC}/v1", "rolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": [who]})


def test_roles_say_who_sees_what(real_kubeconfig: Path, tmp_path: Path) -> None:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    with real_world(real_kubeconfig) as ours, real_world(real_kubeconfig) as theirs:
        for world in (ours, theirs):
            write_archive(store, Generation.C, Cluster(world.namespace, "demo"))
        here, there = (f"/s/{world.namespace}/demo/{SESSION}/api/v0/nodes" for world in (ours, theirs))
        ada, bob = token_of(ours, "ada"), token_of(ours, "bob")
        let_see(ours, "ada")
        kubernetes = Kubernetes(from_kubeconfig([real_kubeconfig]))
        mode = KubernetesTokens(kubernetes, TrustedPeers.parse("127.0.0.1"), parse_access("get rayclusters.ray.io"))
        with asking(tmp_path, mode, store) as server:
            assert server.get(here, bearer(ada)).status_code == 200
            assert server.get(there, bearer(ada)).status_code == 404
            assert [row["namespace"] for row in server.get("/clusters", bearer(ada)).json()] == [ours.namespace]
            assert server.get(here, bearer(bob)).status_code == 404
            assert server.get("/clusters", bearer(bob)).json() == []
            assert server.get(here, bearer("no-token-of-this-cluster")).status_code == 403
            assert server.get(here).status_code == 401
