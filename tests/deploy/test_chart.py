"""The Helm chart, rendered by Helm's own library from the PyPI package `helm-python-sdk`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from ray_history import __version__
from ray_history.archive.settings import Upstream, resolve
from tests.deploy.command_lines import environment, parse
from tests.deploy.documents import CHART, LIVE, REVIEWS, VERSIONS, Document, containers, documents, pods, validate

helm = pytest.importorskip("helm_python", reason="helm-python-sdk has no wheel for this platform")

EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))


def render(values: dict[str, Any]) -> list[Document]:
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        texts = chart.render(values, name="ray-history", namespace="history")
    return [document for name, text in texts.items() if name.endswith(".yaml") for document in documents(text)]


def notes(values: dict[str, Any]) -> str:
    with helm.Chart.load(str(CHART)) as chart:
        (text,) = [
            text
            for name, text in chart.render(values, name="ray-history", namespace="history").items()
            if name.endswith("NOTES.txt")
        ]
    return str(text)


def values_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def one(rendered: list[Document], kind: str, name: str = "ray-history") -> Document:
    (found,) = [each for each in rendered if each["kind"] == kind and each["metadata"]["name"].endswith(name)]
    return found


def server(rendered: list[Document]) -> Document:
    (container,) = containers(one(rendered, "Deployment"))
    return container


@pytest.fixture(params=EXAMPLES, ids=lambda path: path.stem)
def example(request: pytest.FixtureRequest) -> dict[str, Any]:
    return values_of(request.param)


def test_the_renderer_is_helm() -> None:
    assert helm.helm_sdk_version().startswith("v4.")


def test_every_storage_has_an_example() -> None:
    urls = [values_of(path).get("storage", {}).get("url", "") for path in EXAMPLES]
    assert {url.split(":")[0] for url in urls} >= {"s3", "gs", "az", "oss", "file"}


def test_helm_lint_passes(example: dict[str, Any]) -> None:
    report = helm.lint(str(CHART), example, strict=True, namespace="history")
    assert [message for message in report["messages"] if message["severity"] > 1] == []
    assert report["errors"] == []


def test_every_document_is_valid(example: dict[str, Any]) -> None:
    rendered = render(example)
    assert {"Deployment", "Service", "ConfigMap", "ServiceAccount"} <= {each["kind"] for each in rendered}
    for document in rendered:
        validate(document)


def test_names_are_unique(example: dict[str, Any]) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in render(example)]
    assert len(set(names)) == len(names)


def test_the_server_understands_its_arguments_and_its_storage(example: dict[str, Any]) -> None:
    rendered = render(example)
    configmap = one(rendered, "ConfigMap", "ray-history-storage")
    env = environment(server(rendered), {"ray-history-storage": configmap["data"]})
    name, options = parse(server(rendered), env)
    assert name == "serve"
    assert options["host"] == "0.0.0.0"  # noqa: S104
    assert resolve(options["storage"], Upstream(), env).url == env["RAY_HISTORY_STORAGE"]


def test_pods_meet_the_restricted_standard(example: dict[str, Any]) -> None:
    for document in render(example):
        for pod in pods(document):
            assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
            assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers(document):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]


def test_writable_directories_are_mounted(example: dict[str, Any]) -> None:
    container = server(render(example))
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/tmp", "/var/cache/ray-history"} <= mounted
    assert "--cache-dir=/var/cache/ray-history" in container["args"]


def test_selectors_match_the_pods() -> None:
    rendered = render(values_of(CHART / "examples" / "production.yaml"))
    labels = one(rendered, "Deployment")["spec"]["template"]["metadata"]["labels"]
    for selector in (
        one(rendered, "Service")["spec"]["selector"],
        one(rendered, "Deployment")["spec"]["selector"]["matchLabels"],
        one(rendered, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one(rendered, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    monitor = one(rendered, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    assert monitor.items() <= one(rendered, "Service")["metadata"]["labels"].items()


def test_the_image_can_be_fixed_by_its_digest() -> None:
    values: dict[str, Any] = {"storage": {"url": "s3://b"}, "image": {"repository": "example/image", "tag": "1.2.3"}}
    assert server(render(values))["image"] == "example/image:1.2.3"
    digest = "sha256:" + "0123456789abcdef" * 4
    values["image"]["digest"] = digest
    assert server(render(values))["image"] == f"example/image:1.2.3@{digest}"
    assert f"--image example/image:1.2.3@{digest} " in notes(values)


def test_by_default_only_pods_of_the_namespace_may_connect() -> None:
    (rule,) = one(render({"storage": {"url": "s3://b"}}), "NetworkPolicy")["spec"]["ingress"]
    assert rule == {"ports": [{"port": "http"}], "from": [{"podSelector": {}}]}


def test_an_ingress_must_be_let_in() -> None:
    values: dict[str, Any] = {"storage": {"url": "s3://b"}, "ingress": {"enabled": True}}
    with pytest.raises(Exception, match=r"networkPolicy\.ingressFrom"):
        render(values)
    render({**values, "networkPolicy": {"enabled": False}})
    peers = [{"ipBlock": {"cidr": "0.0.0.0/0"}}]
    rendered = render({**values, "networkPolicy": {"ingressFrom": peers}})
    (rule,) = one(rendered, "NetworkPolicy")["spec"]["ingress"]
    assert rule["from"] == peers


@pytest.mark.parametrize("mode", ["none", "token", "kubernetes", "header"])
def test_trusted_peers_are_given_in_every_mode(mode: str) -> None:
    auth = {"mode": mode, "tokensSecret": {"name": "people"}, "header": "X-User"}
    values: dict[str, Any] = {"storage": {"url": "s3://b"}, "networkPolicy": {"enabled": False}}
    values |= {"ingress": {"enabled": True}, "auth": {**auth, "trustedPeers": ["10.0.0.0/8", "192.0.2.7"]}}
    assert "--auth-trusted-peers=10.0.0.0/8,192.0.2.7" in server(render(values))["args"]
    assert "WARNING" not in notes(values)
    if mode != "header":
        values["auth"]["trustedPeers"] = []
        assert not [word for word in server(render(values))["args"] if "trusted" in word]
        assert ("auth.trustedPeers is empty" in notes(values)) == (mode != "none")


def test_the_trial_storage_is_not_selected_as_a_server() -> None:
    rendered = render(values_of(CHART / "examples" / "trial.yaml"))
    selector = one(rendered, "Service")["spec"]["selector"]
    labels = one(rendered, "Deployment", "ray-history-s3")["spec"]["template"]["metadata"]["labels"]
    assert not selector.items() <= labels.items()


def test_probes_use_the_base_path_and_tls() -> None:
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    container = server(render({"storage": {"url": "s3://b"}, "server": {"basePath": "/h", "tlsSecretName": "tls"}}))
    assert [container[probe]["httpGet"]["path"] for probe in probes] == ["/h/livez", "/h/livez", "/h/readyz"]
    assert {container[probe]["httpGet"]["scheme"] for probe in probes} == {"HTTPS"}


def rights(**values: Any) -> set[tuple[str, str]]:
    """The permissions in these values, as verb and resource."""
    rendered = render({"storage": {"url": "s3://b"}, **values})
    roles = [each for each in rendered if each["kind"] == "ClusterRole"]
    rules = [rule for role in roles for rule in role["rules"]]
    return {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, LIVE | REVIEWS),
        ({"auth": {"mode": "none"}}, LIVE),
        ({"kube": {"mode": "off"}}, REVIEWS),
        ({"auth": {"mode": "none"}, "kube": {"mode": "off"}}, set()),
        ({"auth": {"mode": "none"}, "kube": {"useKubernetesProxy": True}}, LIVE | {("get", "services/proxy")}),
        ({"auth": {"mode": "none"}, "kube": {"readTokenSecrets": True}}, LIVE | {("get", "secrets")}),
    ],
)
def test_the_server_has_the_minimal_permissions(values: dict[str, Any], expected: set[tuple[str, str]]) -> None:
    assert rights(**values) == expected


def test_without_permissions_the_pod_gets_no_token() -> None:
    rendered = render({"storage": {"url": "s3://b"}, "auth": {"mode": "none"}, "kube": {"mode": "off"}})
    assert one(rendered, "Deployment")["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "storage.url is required"),
        ({"storage": {"url": "http://x"}}, "url"),
        ({"storage": {"url": "s3://key:secret@bucket"}}, "url"),
        ({"storage": {"url": "file:///archive"}}, "requires storage.claimName"),
        ({"storage": {"url": "s3://b"}, "trialS3": {"enabled": True}}, "leave storage.url empty"),
        ({"storage": {"url": "s3://b"}, "auth": {"mode": "token"}}, "requires auth.tokensSecret.name"),
        ({"storage": {"url": "s3://b"}, "auth": {"mode": "header"}}, "requires auth.header"),
        ({"storage": {"url": "s3://b"}, "auth": {"mode": "basic"}}, "mode"),
        ({"storage": {"url": "s3://b"}, "repliaCount": 2}, "repliaCount"),
        (
            {"storage": {"url": "s3://b"}, "replicaCount": 2, "cache": {"persistence": {"enabled": True}}},
            "requires accessModes [ReadWriteMany]",
        ),
    ],
)
def test_contradictory_values_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(helm.HelmError, match=re.escape(message)):
        render(values)


def test_keys_in_plain_values_are_refused() -> None:
    rendered = render(values_of(CHART / "examples" / "trial.yaml"))
    configmap = one(rendered, "ConfigMap", "ray-history-storage")["data"]
    assert not {name for name in configmap if "KEY" in name}
    assert one(rendered, "Secret", "ray-history-s3")["stringData"]["AWS_SECRET_ACCESS_KEY"]


def test_every_value_is_in_the_schema() -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())

    def missing(values: dict[str, Any], part: dict[str, Any], path: str) -> list[str]:
        found = []
        for name, value in values.items():
            known = part.get("properties")
            if known is None:
                continue
            if name not in known:
                found.append(path + name)
            elif isinstance(value, dict):
                found += missing(value, known[name], f"{path}{name}.")
        return found

    assert missing(values_of(CHART / "values.yaml"), schema, "") == []
    about = values_of(CHART / "Chart.yaml")
    assert about["appVersion"] == __version__
    assert about["kubeVersion"] == f">={VERSIONS[0]}.0-0"


def test_an_unknown_option_is_detected() -> None:
    container = {"command": ["ray-history"], "args": ["serve", "--cach-dir=/x"]}
    with pytest.raises(click.NoSuchOption):
        parse(container, {})


def test_an_existing_account_and_role_are_used() -> None:
    values = {
        "storage": {"url": "s3://b"},
        "serviceAccount": {"create": False, "name": "mine"},
        "rbac": {"create": False},
    }
    rendered = render(values)
    assert not {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"} & {each["kind"] for each in rendered}
    assert one(rendered, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "mine"
