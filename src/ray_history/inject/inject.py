"""The collector added to a user's own YAML: sidecar, shared volume and the variables that make Ray tell its events.

Only documents of a Ray cluster are written anew, with their comments and order; everything else of the file stays as
it is. Adding twice is adding once: what is there is brought up to date.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from .yaml_editing import append, growing, named, parser, quoted, remove_key, set_key, written

logger = logging.getLogger(__name__)

CONTAINER = "ray-history-collector"
"""The name that KubeRay's operator gives its own."""
SHARED = "ray-history-shared"
ARCHIVE = "ray-history-archive"
TOKEN_VOLUME = "ray-token"  # noqa: S105
"""KubeRay's operator adds it to the pods of a cluster with Kubernetes' token authentication."""

_CLUSTER_IN = {
    "RayCluster": (),
    "RayJob": ("rayClusterSpec",),
    "RayService": ("rayClusterConfig",),
    "RayCronJob": ("jobTemplate", "rayClusterSpec"),
}
_SEPARATOR = re.compile(r"^---[ \t]*(?:#.*)?$\n?", re.MULTILINE)
_LIMITS = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "256Mi"}}
_GRACE = 30
_TOKEN_PATH = "/var/run/secrets/ray.io/serviceaccount"  # noqa: S105

Node = Any
"""A part of a YAML document."""
Variables = list[tuple[str, Node]]
"""Names of variables with their text, or what `valueFrom` says."""


class CannotInject(ValueError):
    """Why the collector could not be added, and what to do."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The collector that is added."""

    image: str
    storage: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    env_from: tuple[tuple[str, str], ...] = ()
    """Pairs of `secret` or `configmap` and a name."""
    pvc: str | None = None
    """The PersistentVolumeClaim behind a `file://` archive."""
    port: int = 8084

    def __post_init__(self) -> None:
        told = {name for name, _ in self.env} & {"STORAGE_BACKEND", "RAY_HISTORY_STORAGE"}
        if not (self.storage or told or self.env_from):
            raise CannotInject("say where the archive is: --storage URL, or --env STORAGE_BACKEND=..., or --env-from")
        if bool(self.pvc) != bool(self.directory):
            raise CannotInject("--storage file:///dir and --pvc must be given together: the claim is mounted at /dir")

    @property
    def variables(self) -> Variables:
        return [*([("RAY_HISTORY_STORAGE", self.storage)] if self.storage else []), *self.env]

    @property
    def directory(self) -> str | None:
        parts = urlsplit(self.storage or "")
        return unquote(parts.path) if parts.scheme == "file" else None


def inject(text: str, sidecar: Sidecar) -> str:
    """The text with the collector in the head and in every group of workers of each Ray cluster."""
    pieces, found, start = [], 0, 0
    for separator in _SEPARATOR.finditer(text):
        pieces += [text[start : separator.start()], separator[0]]
        start = separator.end()
    pieces.append(text[start:])
    for number in range(0, len(pieces), 2):
        pieces[number], clusters = _injected(pieces[number], sidecar)
        found += clusters
    if not found:
        raise CannotInject(f"holds no {', '.join(_CLUSTER_IN)} (apiVersion ray.io/v1)")
    return "".join(pieces)


def _injected(text: str, sidecar: Sidecar) -> tuple[str, int]:
    """One document, and how many Ray resources it holds."""
    yaml = parser(text)
    try:
        document = yaml.load(text)
    except YAMLError as error:
        raise CannotInject(f"is no YAML: {' '.join(str(error).split())}") from None
    resources = list(_ray_resources(document))
    for resource in resources:
        _add_to(resource, sidecar)
    if not resources:
        return text, 0
    return written(yaml, document), len(resources)


def _ray_resources(document: Node) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        return
    if document.get("kind") == "List":
        for item in document.get("items") or ():
            yield from _ray_resources(item)
    elif str(document.get("apiVersion")).startswith("ray.io/") and document.get("kind") in _CLUSTER_IN:
        yield document


def _add_to(resource: dict[str, Any], sidecar: Sidecar) -> None:
    kind = resource["kind"]
    metadata = _part(resource, "metadata", kind, dict)
    called = f"{kind} {metadata.get('name') or metadata.get('generateName')}"
    spec = _part(resource, "spec", called, dict)
    for step in _CLUSTER_IN[kind]:
        if step == "rayClusterSpec" and step not in spec and spec.get("clusterSelector"):
            logger.info("%s runs on a cluster that is there: add the collector to that one", called)
            return
        spec = _part(spec, step, called, dict)
    if "historyServerOptions" in spec:
        raise CannotInject(f"{called} has historyServerOptions: the operator adds the collector, set its image there")
    groups = [("Head", _part(spec, "headGroupSpec", called, dict))]
    groups += [("Worker", group) for group in _mappings(spec, "workerGroupSpecs", called)]
    common = [*_identity(resource), *_token(spec, metadata.get("name") if kind == "RayCluster" else None, called)]
    seen: set[int] = set()
    for role, group in groups:
        where = f"{called}, {role.lower()} {group.get('groupName', 'group')}"
        pod = _part(_part(group, "template", where, dict), "spec", where, dict)
        if id(_part(pod, "containers", where, list)) in seen:
            raise CannotInject(f"{where} shares its containers with another group by a YAML alias: write them out")
        seen.add(id(pod["containers"]))
        _mappings(pod, "volumes", where)
        for container in _mappings(pod, "containers", where):
            for key in ("env", "envFrom", "volumeMounts"):
                _mappings(container, key, where)
        root = str((group.get("rayStartParams") or {}).get("temp-dir", "/tmp/ray"))  # noqa: S108
        _add_to_pod(pod, [("RAY_ROLE", role), *common], root, sidecar, where)


def _part(parent: dict[str, Any], key: str, where: str, kind: type) -> Node:
    found = parent.get(key)
    if not isinstance(found, kind) or not found:
        raise CannotInject(f"{where} has no {key}")
    return found


def _mappings(parent: dict[str, Any], key: str, where: str) -> list[Any]:
    found = parent.get(key) or []
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise CannotInject(f"{where}: {key} is no list of mappings")
    return found


def _identity(resource: dict[str, Any]) -> Iterator[tuple[str, Node]]:
    """Who the cluster is; its name is known to the pod alone when a RayJob or RayService makes it."""
    yield "RAY_CLUSTER_NAME", {"fieldRef": {"fieldPath": "metadata.labels['ray.io/cluster']"}}
    yield "RAY_CLUSTER_NAMESPACE", {"fieldRef": {"fieldPath": "metadata.namespace"}}
    kind, name = resource["kind"], resource["metadata"].get("name")
    if kind in ("RayJob", "RayService") and name:
        yield "OWNER_KIND", kind
        yield "OWNER_NAME", str(name)
    elif kind != "RayCluster":
        logger.warning("the %s makes up names: its sessions will be listed by their clusters' names alone", kind)


def _token(spec: dict[str, Any], cluster: str | None, called: str) -> Iterator[tuple[str, Node]]:
    """What the collector shows to a dashboard that asks for Ray's token, as the operator gives it to Ray."""
    options = spec.get("authOptions")
    if options is None or options.get("mode", "token") != "token":
        return
    yield "RAY_AUTH_MODE", "token"
    if options.get("enableK8sTokenAuth"):
        yield "RAY_ENABLE_K8S_TOKEN_AUTH", "true"
        return
    secret = options.get("secretName") or (cluster and re.sub(r"^[^a-zA-Z]", "r", cluster[-50:]))
    if not secret:
        raise CannotInject(f"{called} asks for a token in a Secret of unknown name: set authOptions.secretName")
    yield "RAY_AUTH_TOKEN", {"secretKeyRef": {"name": secret, "key": "auth_token"}}


def _add_to_pod(pod: CommentedMap, known: Variables, root: str, sidecar: Sidecar, where: str) -> None:
    ray = pod["containers"][0]  # KubeRay runs Ray in the first one
    for other in pod["containers"]:
        if other.get("name") != CONTAINER and _program(other) == "collector":
            raise CannotInject(f"{where} has a collector, {other.get('name')!r}: change its image, or remove it first")
    _tell_events(ray, sidecar.port, where)
    mounts = [_shared_mount(pod, ray, root)]
    if sidecar.pvc:
        with growing(pod, "volumes") as volumes:
            set_key(named(volumes, ARCHIVE), "persistentVolumeClaim", {"claimName": sidecar.pvc})
        mounts.append({"name": ARCHIVE, "mountPath": sidecar.directory})
    if any(name == "RAY_ENABLE_K8S_TOKEN_AUTH" for name, _ in known):
        mounts.append({"name": TOKEN_VOLUME, "mountPath": _TOKEN_PATH, "readOnly": True})
    told = [*known, ("RAY_TMP_ROOT", root), ("EVENTS_PORT", str(sidecar.port)), *sidecar.variables]
    with growing(pod, "containers") as containers:
        _update(named(containers, CONTAINER), told, mounts, _security(pod, ray), sidecar)
    if pod.get("terminationGracePeriodSeconds", _GRACE) < _GRACE:
        logger.warning("%s may end before the last uploads: give it %d s", where, _GRACE)


def _update(
    collector: CommentedMap, told: Variables, mounts: list[Node], security: dict[str, Any], sidecar: Sidecar
) -> None:
    set_key(collector, "image", sidecar.image)
    _default(collector, "imagePullPolicy", "IfNotPresent")
    set_key(collector, "command", ["collector"])
    with growing(collector, "env") as env:
        for name, value in told:
            _set_variable(env, name, value)
    if sidecar.env_from:
        with growing(collector, "envFrom") as sources:
            for kind, name in sidecar.env_from:
                key = "secretRef" if kind == "secret" else "configMapRef"
                if not any((source.get(key) or {}).get("name") == name for source in sources):
                    append(sources, {key: {"name": name}})
    with growing(collector, "volumeMounts") as mounted:
        for mount in mounts:
            if not any(entry.get("mountPath") == mount["mountPath"] for entry in mounted):
                append(mounted, mount)
    _default(collector, "resources", _LIMITS)
    _default(collector, "securityContext", security)


def _program(container: CommentedMap) -> str:
    line = [*(container.get("command") or ()), *(container.get("args") or ())]
    return PurePosixPath(str(line[0])).name if line else ""


def _tell_events(ray: CommentedMap, port: int, where: str) -> None:
    wanted = {
        "RAY_enable_ray_event": "true",
        "RAY_enable_core_worker_ray_event_to_aggregator": "true",
        "RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR": f"http://127.0.0.1:{port}/v1/events",
        "RAY_DASHBOARD_AGGREGATOR_AGENT_EXPOSABLE_EVENT_TYPES": "ALL",
    }
    with growing(ray, "env") as env:
        before = {entry.get("name"): entry.get("value") for entry in env}
        for name, value in wanted.items():
            if name.endswith("_TYPES") and name in before:
                continue  # a choice of fewer is the user's to make
            if before.get(name, value) != value:
                logger.warning("%s: %s was %r, is now %r", where, name, before[name], value)
            _set_variable(env, name, value)


def _shared_mount(pod: CommentedMap, ray: CommentedMap, root: str) -> Node:
    """Where Ray's files are: a volume that is already mounted there, or one of ours."""
    above = {str(path) for path in (PurePosixPath(root), *PurePosixPath(root).parents)} - {"/"}
    there = [mount for mount in ray.get("volumeMounts") or () if str(mount.get("mountPath")).rstrip("/") in above]
    if there:
        return dict(max(there, key=lambda mount: len(str(mount["mountPath"]))))
    with growing(pod, "volumes") as volumes:
        set_key(named(volumes, SHARED), "emptyDir", {})
    mount = {"name": SHARED, "mountPath": root}
    with growing(ray, "volumeMounts") as mounts:
        append(mounts, mount)
    return mount


def _security(pod: dict[str, Any], ray: dict[str, Any]) -> dict[str, Any]:
    """As little as possible, as the user that owns Ray's files; 1000 in Ray's images."""
    said = (ray.get("securityContext") or {}).get("runAsUser") or (pod.get("securityContext") or {}).get("runAsUser")
    return {
        "runAsNonRoot": True,
        "runAsUser": said or 1000,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _set_variable(env: CommentedSeq, name: str, value: Node) -> None:
    entry = named(env, name)
    key, other = ("value", "valueFrom") if isinstance(value, str) else ("valueFrom", "value")
    remove_key(entry, other)
    set_key(entry, key, quoted(value) if isinstance(value, str) else value)


def _default(block: CommentedMap, key: str, value: Node) -> None:
    if key not in block:
        set_key(block, key, value)
