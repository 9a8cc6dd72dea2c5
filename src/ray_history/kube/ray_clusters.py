"""Running and suspended clusters from RayCluster objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

GROUP_VERSION = "ray.io/v1"
PLURAL = "rayclusters"
DASHBOARD_PORT = 8265
_LABEL = re.compile("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_OWNERS = ("rayjob", "rayservice")


@dataclass(frozen=True, slots=True)
class RayCluster:
    """A cluster that is running, starting or suspended."""

    namespace: str
    name: str
    uid: str = ""
    created: int = 0
    """Unix seconds."""
    owner_kind: str | None = None
    """`rayjob` or `rayservice`."""
    owner_name: str | None = None
    head_service: str = ""
    """Empty until KubeRay has created it."""
    head_pod: str = ""
    """Changes when the head does."""
    port: int = DASHBOARD_PORT
    ray_version: str | None = None
    authentication: str = ""
    """What its dashboard requires: nothing, a `token` from a Secret, or a `kubernetes` token."""
    secret: str = ""
    is_suspended: bool = False
    """It has no pods, or is losing them, until it is resumed; Kueue suspends clusters that wait for a quota."""


def parse_ray_cluster(body: Mapping[str, Any]) -> RayCluster | None:
    """The cluster of an object, or None without a name. Malformed parts are treated as absent."""
    metadata, spec = _mapping(body, "metadata"), _mapping(body, "spec")
    head = _mapping(_mapping(body, "status"), "head")
    namespace, name = metadata.get("namespace"), metadata.get("name")
    if not isinstance(namespace, str) or not isinstance(name, str):
        return None
    owner_kind, owner_name = _owner(metadata)
    authentication, secret = _authentication(spec, name)
    version = spec.get("rayVersion")
    return RayCluster(
        namespace,
        name,
        str(metadata.get("uid", "")),
        _seconds(metadata.get("creationTimestamp")),
        owner_kind,
        owner_name,
        _service(head.get("serviceName")),
        f"{head.get('podName', '')}/{head.get('podIP', '')}",
        _dashboard_port(spec),
        version if isinstance(version, str) and version else None,
        authentication,
        secret,
        spec.get("suspend") is True or _has_condition(body, "RayClusterSuspended"),
    )


def _has_condition(body: Mapping[str, Any], kind: str) -> bool:
    conditions = _mappings(_mapping(body, "status"), "conditions")
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)


def _owner(metadata: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The owner from the reference that KubeRay sets, or from its labels."""
    for reference in _mappings(metadata, "ownerReferences"):
        kind = str(reference.get("kind", "")).lower()
        name = str(reference.get("name", ""))
        if reference.get("controller") and kind in _OWNERS and _NAME.fullmatch(name):
            return kind, name
    labels = _mapping(metadata, "labels")
    kind = str(labels.get("ray.io/originated-from-crd", "")).lower()
    name = str(labels.get("ray.io/originated-from-cr-name", ""))
    return (kind, name) if kind in _OWNERS and _NAME.fullmatch(name) else (None, None)


def _service(name: Any) -> str:
    """The name if it is one DNS label: a name with dots could point to another namespace."""
    return name if isinstance(name, str) and _LABEL.fullmatch(name) else ""


def _dashboard_port(spec: Mapping[str, Any]) -> int:
    pod = _mapping(_mapping(_mapping(spec, "headGroupSpec"), "template"), "spec")
    head = next(iter(_mappings(pod, "containers")), {})
    for port in _mappings(head, "ports"):
        number = port.get("containerPort")
        if port.get("name") == "dashboard" and isinstance(number, int) and 0 < number < 65536:
            return number
    return DASHBOARD_PORT


def _authentication(spec: Mapping[str, Any], name: str) -> tuple[str, str]:
    options = _mapping(spec, "authOptions")
    if str(options.get("mode", "")).lower() != "token":
        return "", ""
    if options.get("enableK8sTokenAuth") is True:
        return "kubernetes", ""
    return "token", str(options.get("secretName") or "") or _secret_of(name)


def _secret_of(name: str) -> str:
    """The name that the KubeRay operator gives the Secret: shortened to 50 characters, and valid as a label."""
    end = name[-50:]
    return end if end[:1].isalpha() else "r" + end[1:]


def _seconds(moment: Any) -> int:
    try:
        return int(datetime.fromisoformat(str(moment)).timestamp())
    except (ValueError, OverflowError):
        return 0


def _mapping(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = body.get(key)
    return found if isinstance(found, Mapping) else {}


def _mappings(body: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = body.get(key)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []
