"""Rendered charts, kustomizations, and the schemas that validate them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator
from kubernetes_validate.utils import schema_contents
from referencing import Registry, Resource

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "ray-history"
MANIFESTS = ROOT / "deploy" / "manifests"
OVERLAYS = sorted(path.name for path in (MANIFESTS / "overlays").iterdir())
SAMPLES = sorted((MANIFESTS / "samples").glob("*.yaml"))

VERSIONS = ("1.25", "1.37")
"""The oldest Kubernetes version that the chart supports, and the newest."""

LIVE = {("get", "rayclusters"), ("list", "rayclusters"), ("watch", "rayclusters"), ("get", "services")}
REVIEWS = {("create", "tokenreviews"), ("create", "subjectaccessreviews")}
"""Permissions for live clusters, and for reviews of tokens and accesses."""

Document = dict[str, Any]


def documents(text: str) -> list[Document]:
    return [document for document in yaml.safe_load_all(text) if document]


def kustomized(folder: Path) -> list[Document]:
    """The output of `kubectl kustomize` for a folder that only adds resources and patches mappings into them."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    unknown = set(kustomization) - {"apiVersion", "kind", "resources", "patches"}
    assert not unknown, f"{folder}: this merge does not know {unknown}"
    found: list[Document] = []
    for name in kustomization["resources"]:
        path = folder / name
        found += kustomized(path) if path.is_dir() else documents(path.read_text())
    for patch in kustomization.get("patches", []):
        for change in documents((folder / patch["path"]).read_text()):
            (target,) = [each for each in found if identity(each) == identity(change)]
            _merge(target, change)
    return found


def identity(document: Document) -> tuple[str, str, str]:
    return document["apiVersion"], document["kind"], document["metadata"]["name"]


def _merge(target: Document, change: Document) -> None:
    for key, value in change.items():
        assert not isinstance(value, list), "lists are merged by rules of their own: not known here"
        if isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


def containers(document: Document) -> Iterator[Document]:
    """All containers of a document, with the volumes of their pods."""
    for pod in pods(document):
        yield from pod["spec"].get("initContainers", [])
        yield from pod["spec"]["containers"]


def pods(document: Document) -> Iterator[Document]:
    """All pod templates of a document."""
    if isinstance(document, dict):
        if isinstance(document.get("spec"), dict) and "containers" in document["spec"]:
            yield document
            return
        for value in document.values():
            yield from pods(value)
    elif isinstance(document, list):
        for value in document:
            yield from pods(value)


def validate(document: Document) -> None:
    """Validate a document strictly: against the schemas of Kubernetes, or the fields of other resources."""
    if document["apiVersion"] == "ray.io/v1":
        _validate_ray(document)
    elif document["apiVersion"] == "monitoring.coreos.com/v1":
        _known(document["spec"], {"selector", "endpoints"}, "spec")
        for endpoint in document["spec"]["endpoints"]:
            _known(endpoint, {"port", "path", "scheme", "interval", "authorization", "tlsConfig"}, "endpoint")
    else:
        _validate_kubernetes(document)


def _validate_kubernetes(document: Document) -> None:
    for version in VERSIONS:
        _schema(document["kind"], document["apiVersion"], version).validate(document)


@functools.cache
def _schema(kind: str, api_version: str, version: str) -> Draft202012Validator:
    """The strict schema of the package `kubernetes-validate`, whose own `validate` reads it every time."""
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    folder = f"kubernetes-json-schema/v{version}.0-local-strict"
    schema = schema_contents(f"{folder}/{kind.lower()}-{group}.json", version)
    definitions = Resource.from_contents(schema_contents(f"{folder}/_definitions.json", version))
    return Draft202012Validator(schema, registry=definitions @ (Resource.from_contents(schema) @ Registry()))


_CLUSTER = {
    "rayVersion",
    "headGroupSpec",
    "workerGroupSpecs",
    "authOptions",
    "historyServerOptions",
    "enableInTreeAutoscaling",
    "suspend",
}
_HEAD = {"rayStartParams", "template", "serviceType"}
_WORKER = {"groupName", "replicas", "minReplicas", "maxReplicas", "numOfHosts", "rayStartParams", "template"}
_JOB = {
    "entrypoint",
    "clusterSelector",
    "submitterPodTemplate",
    "shutdownAfterJobFinishes",
    "ttlSecondsAfterFinished",
    "rayClusterSpec",
}
_OPERATOR_SETS = {"POD_IP", "FQ_RAY_IP", "RAY_CLUSTER_NAME", "RAY_CLUSTER_NAMESPACE", "RAY_ROLE", "EVENTS_PORT"}


def _validate_ray(document: Document) -> None:
    """The fields of KubeRay's resources that are used here."""
    _known(document, {"apiVersion", "kind", "metadata", "spec"}, document["kind"])
    spec = document["spec"]
    match document["kind"]:
        case "RayCluster":
            _validate_cluster(spec)
        case "RayJob":
            _known(spec, _JOB, "RayJob")
            assert ("rayClusterSpec" in spec) != ("clusterSelector" in spec)
            assert isinstance(spec["entrypoint"], str)
            if "rayClusterSpec" in spec:
                _validate_cluster(spec["rayClusterSpec"])
            if "submitterPodTemplate" in spec:
                _validate_template(spec["submitterPodTemplate"])
        case "RayService":
            _known(spec, {"serveConfigV2", "rayClusterConfig"}, "RayService")
            assert yaml.safe_load(spec["serveConfigV2"])["applications"]
            _validate_cluster(spec["rayClusterConfig"])
        case kind:
            raise AssertionError(f"{kind} is not known here")


def _validate_cluster(spec: Document) -> None:
    _known(spec, _CLUSTER, "cluster")
    assert re.fullmatch(r"\d+\.\d+\.\d+", spec.get("rayVersion", "2.55.0"))
    options = spec.get("historyServerOptions", {}).get("collectorOptions")
    if options is not None:
        _known(options, {"image", "imagePullPolicy", "resources", "env"}, "collectorOptions")
        given = {entry["name"]: entry for entry in options["env"]}
        assert not set(given) & _OPERATOR_SETS, "the operator refuses these"
        assert given["STORAGE_BACKEND"]["value"] == "s3"
        assert "S3_REGION" in given
    _known(spec["headGroupSpec"], _HEAD, "headGroupSpec")
    _validate_group(spec["headGroupSpec"])
    for group in spec.get("workerGroupSpecs", []):
        _known(group, _WORKER, "workerGroupSpecs")
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        _validate_group(group)


def _validate_group(group: Document) -> None:
    for name, value in group.get("rayStartParams", {}).items():
        assert isinstance(name, str)
        assert isinstance(value, str), f"rayStartParams.{name} must be text"
    _validate_template(group["template"])


def _validate_template(template: Document) -> None:
    _validate_kubernetes({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template})
    check_names(template)


def _known(mapping: Document, names: set[str], where: str) -> None:
    assert not set(mapping) - names, f"{where} has no {set(mapping) - names}"


def check_names(template: Document) -> None:
    """Checks of the API server that the schema does not have: duplicate names, mounts of missing volumes."""
    spec = template["spec"]
    volumes = [volume["name"] for volume in spec.get("volumes", [])]
    assert len(set(volumes)) == len(volumes), volumes
    names = [container["name"] for container in spec["containers"]]
    assert len(set(names)) == len(names), names
    for container in spec["containers"]:
        mounts = container.get("volumeMounts", [])
        paths = [mount["mountPath"] for mount in mounts]
        assert len(set(paths)) == len(paths), paths
        # KubeRay's operator adds the volume of the token itself.
        assert {mount["name"] for mount in mounts} - {"ray-token"} <= set(volumes)
        variables = [entry["name"] for entry in container.get("env", [])]
        assert len(set(variables)) == len(variables), variables
