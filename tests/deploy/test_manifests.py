"""The plain manifests: the output of kustomize is valid, and the programs accept its options."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ray_history.archive.settings import Upstream, resolve
from ray_history.inject.inject import CONTAINER, Sidecar, inject
from tests.deploy.command_lines import collector_settings, environment, parse
from tests.deploy.documents import (
    LIVE,
    MANIFESTS,
    OVERLAYS,
    REVIEWS,
    SAMPLES,
    containers,
    documents,
    identity,
    kustomized,
    validate,
)

FOLDERS = [MANIFESTS / "base", MANIFESTS / "minio", *(MANIFESTS / "overlays" / name for name in OVERLAYS)]
INJECTED = [path for path in SAMPLES if path.stem in ("raycluster", "rayjob-own-cluster", "rayservice")]


def by_name(path: Path) -> str:
    return path.stem


def configmaps(overlay: str) -> dict[str, dict[str, str]]:
    found = kustomized(MANIFESTS / "overlays" / overlay)
    return {each["metadata"]["name"]: each["data"] for each in found if each["kind"] == "ConfigMap"}


@pytest.mark.parametrize("folder", FOLDERS, ids=by_name)
def test_every_document_is_valid(folder: Path) -> None:
    found = kustomized(folder)
    assert len({identity(each) for each in found}) == len(found) > 0
    for document in found:
        validate(document)


@pytest.mark.parametrize("path", SAMPLES, ids=by_name)
def test_every_sample_is_valid(path: Path) -> None:
    for document in documents(path.read_text()):
        validate(document)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="the real kustomize is in kubectl, which is not installed")
@pytest.mark.parametrize("folder", FOLDERS, ids=by_name)
def test_our_merge_is_what_kustomize_does(folder: Path) -> None:
    ran = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=True)
    assert sorted(documents(ran.stdout), key=identity) == sorted(kustomized(folder), key=identity)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_server_understands_its_arguments_and_its_storage(overlay: str) -> None:
    (deployment,) = [each for each in kustomized(MANIFESTS / "overlays" / overlay) if each["kind"] == "Deployment"]
    (container,) = containers(deployment)
    env = environment(container, configmaps(overlay))
    name, options = parse(container, env)
    assert name == "serve"
    assert resolve(options["storage"], Upstream(), env).url == env["RAY_HISTORY_STORAGE"]


def test_the_server_has_the_rights_of_the_chart_and_no_more() -> None:
    (role,) = [each for each in kustomized(MANIFESTS / "base") if each["kind"] == "ClusterRole"]
    given = {(verb, what) for rule in role["rules"] for what in rule["resources"] for verb in rule["verbs"]}
    assert given == LIVE | REVIEWS


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("path", INJECTED, ids=by_name)
def test_collectors_understand_their_variables(path: Path, overlay: str) -> None:
    found = [
        container
        for document in documents(path.read_text())
        for container in containers(document)
        if container["name"] == CONTAINER
    ]
    assert found
    for container in found:
        env = environment(container, configmaps(overlay))
        settings = collector_settings(container, env)
        assert settings.port == 8084
        assert resolve(None, Upstream(), env).url == env["RAY_HISTORY_STORAGE"]
    assert environment(found[0], {})["RAY_ROLE"] == "Head"


@pytest.mark.parametrize("path", INJECTED, ids=by_name)
def test_samples_are_what_inject_makes(path: Path) -> None:
    sources = (("configmap", "ray-history-storage"), ("secret", "ray-history-keys"))
    sidecar = Sidecar(image="ray-history:0.1.0", env_from=sources)
    assert inject(path.read_text(), sidecar) == path.read_text()


@pytest.mark.parametrize("path", SAMPLES, ids=by_name)
def test_no_sample_needs_a_hook(path: Path) -> None:
    for document in documents(path.read_text()):
        assert not [container for container in containers(document) if "lifecycle" in container]


def test_the_operator_gets_all_it_asks_for() -> None:
    (cluster,) = documents((MANIFESTS / "samples" / "raycluster-operator.yaml").read_text())
    options = cluster["spec"]["historyServerOptions"]["collectorOptions"]
    # What the operator adds by itself; it gives no command.
    added = {"RAY_CLUSTER_NAME": "demo", "RAY_CLUSTER_NAMESPACE": "default", "RAY_ROLE": "Head", "EVENTS_PORT": "8084"}
    added |= {"POD_IP": "10.0.0.1", "FQ_RAY_IP": "demo-head-svc.default.svc.cluster.local"}
    added |= {"OWNER_KIND": "RayJob", "OWNER_NAME": "nightly", "RAY_DASHBOARD_ADDRESS": "http://localhost:8265"}
    env = environment(options, {}) | added
    assert collector_settings({}, env).cluster.owner_kind.lower() == "rayjob"
    assert resolve(None, Upstream(), env).url == "s3://ray-historyserver"
