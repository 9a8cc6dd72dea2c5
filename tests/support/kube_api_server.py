"""A real Kubernetes API server on loopback: `etcd` and `kube-apiserver`, found on the PATH or in KUBEBUILDER_ASSETS.

It runs no pods: it stores RayClusters, authenticates service accounts and authorizes by roles, which is all that this
project needs. RayClusters are stored without a schema.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import ssl
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from .processes import PartUnavailable, Process, free_ports, port_is_open

_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
RAY_CLUSTERS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "rayclusters.ray.io"},
    "spec": {
        "group": "ray.io",
        "scope": "Namespaced",
        "names": {
            "kind": "RayCluster",
            "listKind": "RayClusterList",
            "plural": "rayclusters",
            "singular": "raycluster",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}},
            }
        ],
    },
}


def _program(name: str) -> str:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    found = shutil.which(name, path=os.pathsep.join(filter(None, [assets, os.environ.get("PATH")])))
    if found is None:
        raise PartUnavailable(f"{name} is neither on the PATH nor in KUBEBUILDER_ASSETS")
    return found


class KubeAPIServer:
    """An API server with RBAC; the kubeconfig is that of its administrator."""

    def __init__(self, folder: Path) -> None:
        peers, clients, self._port = free_ports(3)
        self._token = secrets.token_hex(16)
        self._certificate = folder / "certificates" / "apiserver.crt"
        self.kubeconfig = folder / "kubeconfig"
        key = folder / "service-accounts.pem"
        etcd = f"http://127.0.0.1:{clients}"
        self._etcd = Process(
            [
                *(_program("etcd"), "--data-dir", folder / "etcd", "--unsafe-no-fsync"),
                *("--listen-client-urls", etcd, "--advertise-client-urls", etcd),
                *("--listen-peer-urls", f"http://127.0.0.1:{peers}"),
            ],
            log=folder / "etcd.log",
            ready=lambda: port_is_open(clients),
        )
        self._server = Process(
            [
                *(_program("kube-apiserver"), "--etcd-servers", etcd, "--bind-address", "127.0.0.1"),
                *("--secure-port", str(self._port), "--cert-dir", self._certificate.parent),
                *("--authorization-mode", "RBAC", "--token-auth-file", folder / "tokens.csv"),
                *("--service-account-issuer", "https://127.0.0.1", "--service-account-key-file", key),
                *("--service-account-signing-key-file", key, "--service-cluster-ip-range", "10.0.0.0/24"),
            ],
            log=folder / "kube-apiserver.log",
            ready=lambda: self._answers("/readyz"),
            start_seconds=120,
        )
        private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        key.write_bytes(
            private.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        (folder / "tokens.csv").write_text(f'{self._token},admin,1,"system:masters"\n')

    def __enter__(self) -> KubeAPIServer:
        with ExitStack() as started:
            started.enter_context(self._etcd)
            started.enter_context(self._server)
            self._ask("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", RAY_CLUSTERS)
            self._write_kubeconfig()
            self._started = started.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._started.close()

    def _write_kubeconfig(self) -> None:
        server = {"server": f"https://127.0.0.1:{self._port}", "certificate-authority": str(self._certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": self._token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        self.kubeconfig.write_text(json.dumps(config))

    def _answers(self, path: str) -> bool:
        try:
            self._ask(path)
        except OSError:
            return False
        return True

    def _ask(self, path: str, body: object = None) -> None:
        request = urllib.request.Request(
            f"https://127.0.0.1:{self._port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        trusted = ssl.create_default_context(cafile=str(self._certificate))
        urllib.request.urlopen(request, timeout=30, context=trusted).close()
