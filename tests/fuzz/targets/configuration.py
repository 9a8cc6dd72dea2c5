"""Files that operators write, and objects of Kubernetes."""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec

from ray_history.archive.errors import Misconfigured as StorageMisconfigured
from ray_history.archive.settings import Upstream, resolve
from ray_history.collector.settings import WrongSetting, parse_duration
from ray_history.collector.settings import resolve as collector_resolve
from ray_history.decoding import DECODING_ERRORS
from ray_history.inject.inject import CannotInject, Sidecar, inject
from ray_history.kube.errors import Misconfigured, Unreachable
from ray_history.kube.kubeconfig import from_kubeconfig
from ray_history.kube.ray_clusters import parse_ray_cluster
from ray_history.kube.reviews import is_allowed, token_review
from ray_history.server.auth.rules import InvalidRules, parse_rules
from tests.fuzz.target import target

_KUBECONFIG = {
    "current-context": "blue",
    "contexts": [{"name": "blue", "context": {"cluster": "blue", "user": "ada"}}],
    "clusters": [{"name": "blue", "cluster": {"server": "http://blue.example:8080/", "proxy-url": "http://proxy"}}],
    "users": [{"name": "ada", "user": {"username": "ada", "password": "pw", "as": "bob"}}],
}
_NAMED = {**_KUBECONFIG, "users": [{"name": "ada", "user": {"token": "abc", "client-certificate-data": "eA=="}}]}


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="ray-history-fuzz-"))


def _kubeconfigs() -> list[bytes]:
    block = b"current-context: a\ncontexts:\n- name: a\n  context: {cluster: a}\n"
    block += b"clusters:\n- name: a\n  cluster:\n    server: https://a\n"
    return [json.dumps(config).encode() for config in (_KUBECONFIG, _NAMED)] + [block]


@target(
    "kubeconfig",
    _kubeconfigs,
    tokens=(b"\n- ", b"&a ", b"*a", b"!!binary ", b"<<: ", b"%YAML", b"null", b"~"),
    is_linear=False,
    examples=60,
)
def kubeconfig(data: bytes) -> None:
    """The address of an API server and credentials for it, or Misconfigured."""
    file = _folder() / "config"
    file.write_bytes(data)
    with suppress(Misconfigured):
        access = from_kubeconfig([file])
        assert access.server.startswith(("http://", "https://"))
        if b"exec" not in data and b"\\" not in data:  # no mutation may run a program
            identity = asyncio.run(access.identity())
            assert all("\n" not in value for value in identity.headers.values())


def _ray_clusters() -> list[bytes]:
    metadata = {
        "namespace": "default",
        "name": "demo",
        "uid": "1",
        "creationTimestamp": "2026-01-31T12:00:00Z",
        "ownerReferences": [{"kind": "RayJob", "name": "job", "controller": True}],
        "labels": {"ray.io/originated-from-crd": "RayService", "ray.io/originated-from-cr-name": "serve"},
    }
    container = {"name": "head", "ports": [{"name": "dashboard", "containerPort": 8265}]}
    spec = {
        "rayVersion": "2.60.0",
        "suspend": False,
        "authOptions": {"mode": "token", "secretName": "s"},
        "headGroupSpec": {"template": {"spec": {"containers": [container]}}},
    }
    conditions = [{"type": "RayClusterSuspended", "status": "True"}]
    status = {"head": {"serviceName": "demo-head-svc", "podIP": "10.0.0.1"}, "conditions": conditions}
    return [json.dumps({"metadata": metadata, "spec": spec, "status": status}).encode()]


@target("ray_clusters", _ray_clusters, tokens=(b'"ports":[', b'"ownerReferences":[', b"0001-01-01T00:00:00+23:59"))
def ray_clusters(data: bytes) -> None:
    """A cluster, or None; what is malformed in it counts as absent, and its names cannot lead elsewhere."""
    try:
        body = msgspec.json.decode(data, type=dict)
    except DECODING_ERRORS:
        return
    found = parse_ray_cluster(body)
    if found is not None:
        assert 0 < found.port < 65536
        assert not set(found.head_service) & set("./:@?#")
        assert isinstance(found.created, int)
        assert (found.owner_kind is None) == (found.owner_name is None)


@target(
    "reviews",
    lambda: [
        b'{"status": {"authenticated": true, "user": {"username": "ada", "groups": ["a"]}, "audiences": ["x"]}}',
        b'{"status": {"allowed": true, "reason": "rbac"}}',
    ],
    tokens=(b'"extra":{"a":["b"]}', b'"groups":null', b'"username":7', b'"allowed":"false"'),
)
def reviews(data: bytes) -> None:
    """Only what the API server says in so many words lets a viewer in."""
    try:
        body = msgspec.json.decode(data, type=dict)
    except DECODING_ERRORS:
        return
    with suppress(Unreachable):
        assert not is_allowed(body) or body["status"]["allowed"] is True
    with suppress(Unreachable):
        user = token_review(body).user
        assert user is None or body["status"]["authenticated"] is True
        assert user is None or all(isinstance(text, str) for text in (user.name, user.uid, *user.groups))


_RULES = (
    b'[{"name": "ada", "token": "0123456789abcdef", "namespaces": ["ml-*", "a/b"]},'
    b' {"group": "g", "namespaces": ["*"]}]'
)


@target("rules_file", lambda: [_RULES], tokens=(b'"token_sha256":"', b'"namespaces":[]', b"[!a]", b"\xff", b"**"))
def rules_file(data: bytes) -> None:
    """Rules that let nobody in but those whom they name, or InvalidRules."""
    with suppress(InvalidRules):
        rules = parse_rules(data)
        assert rules.by_token("not-in-the-file-at-all") is None
        for rule in rules.rules:
            assert bool(rule.name) != bool(rule.group)
            assert isinstance(rule.allows("default", "demo"), bool)


_STORAGE = (
    b's3\n{"s3Bucket": "b", "s3Region": "r", "s3Endpoint": "localhost:9000", "s3ForcePathStyle": "true"}',
    b'azureblob\n{"azureAccountName": "a", "azureContainer": "c"}',
    b'gcs\n{"gcsBucket": "b"}',
    b'aliyunoss\n{"ossBucket": "b", "ossRegion": "r", "ossEndpoint": "e"}',
    b"s3://bucket/prefix",
    b"file:///tmp/archive",
    b"az://container/prefix",
)


@target(
    "storage_settings", lambda: _STORAGE, tokens=(b"://", b"%2f", b"..", b"[::1]", b":99999", b"@", b"?a=b", b"\xff")
)
def storage_settings(data: bytes) -> None:
    """Settings of a backend, or Misconfigured with a text."""
    first, newline, config = data.partition(b"\n")
    text = first.decode(errors="replace")
    file = _folder() / "storage.json"
    file.write_bytes(config)
    with suppress(StorageMisconfigured):
        if newline:
            resolve(None, Upstream(text, str(file), "root"), {})
        else:
            resolve(text, Upstream(), {})


def _manifests() -> list[bytes]:
    return [
        b"apiVersion: ray.io/v1\nkind: RayCluster\nmetadata:\n  name: demo\n"
        b"spec:\n  headGroupSpec:\n    rayStartParams: {}\n    template:\n"
        b"      spec:\n        containers:\n        - name: ray-head\n          image: ray:2\n# end\n---\nkind: List\n"
    ]


@target(
    "manifests",
    _manifests,
    tokens=(b"---\n", b"&a ", b"*a", b"|-\n", b"{", b"}", b"#", b"\t", b"env:\n", b"!!x "),
    is_linear=False,
    examples=30,
)
def manifests(data: bytes) -> None:
    """A manifest with the collector, in which a second run changes nothing, or CannotInject."""
    sidecar = Sidecar(image="ray-history:0.1.0", storage="s3://history")
    with suppress(CannotInject):
        once = inject(data.decode(errors="replace"), sidecar)
        assert inject(once, sidecar) == once


@target(
    "collector_settings",
    lambda: [b"1m30s", b"100ms", b"-1", b"http://[::1]:8265/x", b"0x1f"],
    tokens=(b"h", b"ms", b".", "µs".encode(), "٣".encode()),
)
def collector_settings(data: bytes) -> None:
    """A setting is a value in its range, or a WrongSetting."""
    text = data.decode(errors="replace")
    with suppress(ValueError):
        assert parse_duration(text) >= 0
    for flag in ("--push-interval", "--events-port", "--dashboard-address", "--ray-node-id"):
        with suppress(WrongSetting, StorageMisconfigured):
            collector_resolve({flag: text}, {})
