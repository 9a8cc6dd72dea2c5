"""Adds the collector to a user's own YAML: sidecar, shared volume and the variables that make Ray export its events.

Only documents that describe a Ray cluster are rewritten; their comments and order are preserved. Adding is idempotent:
an existing collector is updated.
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

from ray_history.ray_variables import EXPOSABLE_EVENT_TYPES, REPORT_INTERVALS, recording_variables

from .yaml_editing import append, dump, entry_named, list_to_extend, make_parser, quoted, remove_key, set_key

logger = logging.getLogger(__name__)

CONTAINER = "ray-history-collector"
"""KubeRay's operator uses the same name."""
SHARED = "ray-history-shared"
ARCHIVE = "ray-history-archive"
TOKEN_VOLUME = "ray-token"  # noqa: S105
"""KubeRay's operator adds it to the pods of a cluster with Kubernetes' token authentication."""

_CLUSTER_SPEC = {
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
"""A node of a YAML document."""
Variables = list[tuple[str, Node]]
"""Names of variables with their text or their `valueFrom`."""


class CannotInject(ValueError):
    """The collector cannot be added; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The collector container."""

    image: str
    storage: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    env_from: tuple[tuple[str, str], ...] = ()
    """Pairs of `secret` or `configmap`, and its name."""
    pvc: str | None = None
    """The PersistentVolumeClaim behind a `file://` archive."""
    port: int = 8084

    def __post_init__(self) -> None:
        in_env = {name for name, _ in self.env} & {"STORAGE_BACKEND", "RAY_HISTORY_STORAGE"}
        if not (self.storage or in_env or self.env_from):
            raise CannotInject("no storage given: use --storage URL, --env STORAGE_BACKEND=... or --env-from")
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
    """The text with the collector added to the head and to every worker group of each Ray cluster."""
    pieces, found, start = [], 0, 0
    for separator in _SEPARATOR.finditer(text):
        pieces += [text[start : separator.start()], separator[0]]
        start = separator.end()
    pieces.append(text[start:])
    for number in range(0, len(pieces), 2):
        pieces[number], clusters = _inject_document(pieces[number], sidecar)
        found += clusters
    if not found:
        raise CannotInject(f"contains no {', '.join(_CLUSTER_SPEC)} (apiVersion ray.io/v1)")
    return "".join(pieces)


def _inject_document(text: str, sidecar: Sidecar) -> tuple[str, int]:
    """The changed document, and the number of Ray resources in it."""
    yaml = make_parser(text)
    try:
        document = yaml.load(text)
    except YAMLError as error:
        raise CannotInject(f"is not YAML: {' '.join(str(error).split())}") from None
    resources = list(_ray_resources(document))
    for resource in resources:
        _add_to(resource, sidecar)
    if not resources:
        return text, 0
    return dump(yaml, document), len(resources)


def _ray_resources(document: Node) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        return
    if document.get("kind") == "List":
        for item in document.get("items") or ():
            yield from _ray_resources(item)
    elif str(document.get("apiVersion")).startswith("ray.io/") and document.get("kind") in _CLUSTER_SPEC:
        yield document


def _add_to(resource: dict[str, Any], sidecar: Sidecar) -> None:
    kind = resource["kind"]
    metadata = _part(resource, "metadata", kind, dict)
    title = f"{kind} {metadata.get('name') or metadata.get('generateName')}"
    spec = _part(resource, "spec", title, dict)
    for step in _CLUSTER_SPEC[kind]:
        if step == "rayClusterSpec" and step not in spec and spec.get("clusterSelector"):
            logger.info("%s runs on an existing cluster: add the collector to that cluster", title)
            return
        spec = _part(spec, step, title, dict)
    if "historyServerOptions" in spec:
        raise CannotInject(f"{title} has historyServerOptions: the operator adds the collector; set its image there")
    groups = [("Head", _part(spec, "headGroupSpec", title, dict))]
    groups += [("Worker", group) for group in _mappings(spec, "workerGroupSpecs", title)]
    common = [*_identity(resource), *_token(spec, metadata.get("name") if kind == "RayCluster" else None, title)]
    lists: set[int] = set()
    for role, group in groups:
        where = f"{title}, {role.lower()} {group.get('groupName', 'group')}"
        pod = _part(_part(group, "template", where, dict), "spec", where, dict)
        if id(_part(pod, "containers", where, list)) in lists:
            raise CannotInject(f"{where} shares its containers with another group through a YAML alias: write them out")
        lists.add(id(pod["containers"]))
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
        raise CannotInject(f"{where}: {key} is not a list of mappings")
    return found


def _identity(resource: dict[str, Any]) -> Iterator[tuple[str, Node]]:
    """The identity of the cluster. Only the pod knows its name if a RayJob or RayService creates it."""
    yield "RAY_CLUSTER_NAME", {"fieldRef": {"fieldPath": "metadata.labels['ray.io/cluster']"}}
    yield "RAY_CLUSTER_NAMESPACE", {"fieldRef": {"fieldPath": "metadata.namespace"}}
    kind, name = resource["kind"], resource["metadata"].get("name")
    if kind in ("RayJob", "RayService") and name:
        yield "OWNER_KIND", kind
        yield "OWNER_NAME", str(name)
    elif kind != "RayCluster":
        logger.warning("%s without a fixed name: its sessions will be listed under the names of their clusters", kind)


def _token(spec: dict[str, Any], cluster: str | None, title: str) -> Iterator[tuple[str, Node]]:
    """Variables for a dashboard that requires Ray's token, as the operator sets them for Ray."""
    options = spec.get("authOptions")
    if options is None or options.get("mode", "token") != "token":
        return
    yield "RAY_AUTH_MODE", "token"
    if options.get("enableK8sTokenAuth"):
        yield "RAY_ENABLE_K8S_TOKEN_AUTH", "true"
        return
    secret = options.get("secretName") or (cluster and re.sub(r"^[^a-zA-Z]", "r", cluster[-50:]))
    if not secret:
        raise CannotInject(f"{title} requires a token from an unnamed Secret: set authOptions.secretName")
    yield "RAY_AUTH_TOKEN", {"secretKeyRef": {"name": secret, "key": "auth_token"}}


def _add_to_pod(pod: CommentedMap, identity: Variables, root: str, sidecar: Sidecar, where: str) -> None:
    ray = pod["containers"][0]  # KubeRay runs Ray in the first container
    _take_over(pod["containers"][1:], where)
    _enable_events(ray, sidecar.port, where)
    mounts = [_shared_mount(pod, ray, root)]
    if sidecar.pvc:
        with list_to_extend(pod, "volumes") as volumes:
            set_key(entry_named(volumes, ARCHIVE), "persistentVolumeClaim", {"claimName": sidecar.pvc})
        mounts.append({"name": ARCHIVE, "mountPath": sidecar.directory})
    if any(name == "RAY_ENABLE_K8S_TOKEN_AUTH" for name, _ in identity):
        mounts.append({"name": TOKEN_VOLUME, "mountPath": _TOKEN_PATH, "readOnly": True})
    variables = [*identity, ("RAY_TMP_ROOT", root), ("EVENTS_PORT", str(sidecar.port)), *sidecar.variables]
    with list_to_extend(pod, "containers") as containers:
        _update(entry_named(containers, CONTAINER), variables, mounts, _security(pod, ray), sidecar)
    if pod.get("terminationGracePeriodSeconds", _GRACE) < _GRACE:
        logger.warning("%s may be killed before the last uploads: increase its grace period to %d s", where, _GRACE)


def _update(
    collector: CommentedMap, variables: Variables, mounts: list[Node], security: dict[str, Any], sidecar: Sidecar
) -> None:
    set_key(collector, "image", sidecar.image)
    _default(collector, "imagePullPolicy", "IfNotPresent")
    if _program(collector) != "collector":
        set_key(collector, "command", ["collector"])  # its `args` stay: KubeRay's flags, overridden by our variables
    with list_to_extend(collector, "env") as env:
        for name, value in variables:
            _set_variable(env, name, value)
    if sidecar.env_from:
        with list_to_extend(collector, "envFrom") as sources:
            for kind, name in sidecar.env_from:
                key = "secretRef" if kind == "secret" else "configMapRef"
                if not any((source.get(key) or {}).get("name") == name for source in sources):
                    append(sources, {key: {"name": name}})
    with list_to_extend(collector, "volumeMounts") as mounted:
        for mount in mounts:
            if not any(entry.get("mountPath") == mount["mountPath"] for entry in mounted):
                append(mounted, mount)
    _default(collector, "resources", _LIMITS)
    _default(collector, "securityContext", security)


def _take_over(containers: list[CommentedMap], where: str) -> None:
    """Make another collector ours, KubeRay's for example: both would listen on the same port."""
    names = [str(container.get("name")) for container in containers if _is_collector(container)]
    if len(names) > 1:
        raise CannotInject(f"{where} has several collectors ({', '.join(names)}): remove all but one")
    for container in containers:
        if _is_collector(container) and container["name"] != CONTAINER:
            logger.warning("%s: replaced the collector %r", where, container["name"])
            set_key(container, "name", CONTAINER)


def _is_collector(container: CommentedMap) -> bool:
    if container.get("name") == CONTAINER or _program(container) == "collector":
        return True
    if re.split("[:@]", PurePosixPath(str(container.get("image"))).name)[0] == "collector":
        return True
    variables = {entry.get("name") for entry in container.get("env") or ()}
    return "STORAGE_BACKEND" in variables and bool(variables & {"RAY_ROLE", "RAY_CLUSTER_NAME"})


def _program(container: CommentedMap) -> str:
    """The program that a container's `command` names; without one it is the entry point of the image."""
    line = container.get("command") or [""]
    return PurePosixPath(str(line[0])).name


def _enable_events(ray: CommentedMap, port: int, where: str) -> None:
    with list_to_extend(ray, "env") as env:
        before = {entry.get("name"): entry.get("value") for entry in env}
        for name, value in recording_variables(port).items():
            if name in (EXPOSABLE_EVENT_TYPES, *REPORT_INTERVALS) and before.get(name, "ALL") != "ALL":
                continue  # the user may have chosen fewer types, or other intervals
            if before.get(name, value) not in (value, "ALL"):
                logger.warning("%s: changed %s from %r to %r", where, name, before[name], value)
            _set_variable(env, name, value)


def _shared_mount(pod: CommentedMap, ray: CommentedMap, root: str) -> Node:
    """The mount of Ray's files: a volume that is already mounted there, or a new one."""
    above = {str(path) for path in (PurePosixPath(root), *PurePosixPath(root).parents)} - {"/"}
    existing = [mount for mount in ray.get("volumeMounts") or () if str(mount.get("mountPath")).rstrip("/") in above]
    if existing:
        return dict(max(existing, key=lambda mount: len(str(mount["mountPath"]))))
    with list_to_extend(pod, "volumes") as volumes:
        set_key(entry_named(volumes, SHARED), "emptyDir", {})
    mount = {"name": SHARED, "mountPath": root}
    with list_to_extend(ray, "volumeMounts") as mounts:
        append(mounts, mount)
    return mount


def _security(pod: dict[str, Any], ray: dict[str, Any]) -> dict[str, Any]:
    """Minimal privileges, with the user id that owns Ray's files; it is 1000 in Ray's images."""
    user = (ray.get("securityContext") or {}).get("runAsUser") or (pod.get("securityContext") or {}).get("runAsUser")
    return {
        "runAsNonRoot": True,
        "runAsUser": user or 1000,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _set_variable(env: CommentedSeq, name: str, value: Node) -> None:
    entry = entry_named(env, name)
    key, other = ("value", "valueFrom") if isinstance(value, str) else ("valueFrom", "value")
    remove_key(entry, other)
    set_key(entry, key, quoted(value) if isinstance(value, str) else value)


def _default(block: CommentedMap, key: str, value: Node) -> None:
    if key not in block:
        set_key(block, key, value)
