"""Adding the collector to a user's own YAML."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ray_history.inject.inject import CONTAINER, CannotInject, Sidecar, inject
from ray_history.ray_variables import EVENT_TYPES
from tests.cli.kuberay_samples import COLLECTORS, Sample
from tests.deploy.command_lines import collector_settings, environment
from tests.deploy.documents import Document, containers, documents, pods, validate

GOLDEN = Path(__file__).parent / "golden"
S3 = Sidecar(image="ray-history:0.1.0", storage="s3://history")

HEAD = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  name: demo
spec:
  headGroupSpec:
    rayStartParams: {}
    template:
      spec:
        containers:
        - name: ray-head
          image: rayproject/ray:2.58.1
"""


def collectors(text: str) -> list[Document]:
    return [each for document in documents(text) for each in containers(document) if each["name"] == CONTAINER]


def variables(container: Document) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


@pytest.mark.parametrize("case", sorted(GOLDEN.glob("*.in.yaml")), ids=lambda path: path.name.split(".")[0])
def test_golden_cases(case: Path) -> None:
    """To rewrite the expected files: `ray-history inject -f X.in.yaml --storage s3://history > X.out.yaml`."""
    made = inject(case.read_text(), S3)
    assert made == Path(str(case).replace(".in.", ".out.")).read_text()
    for document in documents(made):
        validate(document)


@pytest.mark.parametrize("case", sorted(GOLDEN.glob("*.in.yaml")), ids=lambda path: path.name.split(".")[0])
def test_adding_is_idempotent(case: Path) -> None:
    once = inject(case.read_text(), S3)
    assert inject(once, S3) == once


@pytest.mark.parametrize("case", sorted(GOLDEN.glob("*.in.yaml")), ids=lambda path: path.name.split(".")[0])
def test_every_line_of_the_user_is_kept_in_order(case: Path) -> None:
    """Comments, quotes and blank lines included."""
    made = iter(inject(case.read_text(), S3).splitlines())
    lost = [line for line in case.read_text().splitlines() if not any(line == other for other in made)]
    assert lost == []


def test_headings_stay_above_their_block() -> None:
    text = HEAD + "  # ---- the workers ----\n  workerGroupSpecs: []\n"
    assert "  # ---- the workers ----\n  workerGroupSpecs: []\n" in inject(text, S3)


def test_changed_options_update_the_collector() -> None:
    again = inject(
        inject(HEAD, S3), Sidecar(image="ray-history:9", storage="gs://other", env=(("PUSH_INTERVAL", "5s"),))
    )
    (container,) = collectors(again)
    assert container["image"] == "ray-history:9"
    assert variables(container)["RAY_HISTORY_STORAGE"] == "gs://other"
    assert variables(container)["PUSH_INTERVAL"] == "5s"


def test_edits_of_the_user_are_kept() -> None:
    once = inject(HEAD, S3).replace("memory: 256Mi", "memory: 1Gi")
    (container,) = collectors(inject(once, S3))
    assert container["resources"]["limits"]["memory"] == "1Gi"


def test_an_existing_volume_is_shared() -> None:
    text = HEAD + (
        "          volumeMounts:\n          - name: logs\n            mountPath: /tmp/ray\n            subPath: a\n"
        "        volumes:\n        - name: logs\n          emptyDir: {}\n"
    )
    (pod,) = pods(documents(inject(text, S3))[0])
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["logs"]
    assert pod["spec"]["containers"][1]["volumeMounts"] == [{"name": "logs", "mountPath": "/tmp/ray", "subPath": "a"}]


def test_the_temp_dir_of_ray_is_used() -> None:
    text = HEAD.replace("rayStartParams: {}", "rayStartParams: {temp-dir: /data/ray}")
    (container,) = collectors(inject(text, S3))
    assert variables(container)["RAY_TMP_ROOT"] == "/data/ray"
    assert container["volumeMounts"][0]["mountPath"] == "/data/ray"


def test_the_collector_runs_as_rays_user() -> None:
    text = HEAD.replace("        containers:", "        securityContext: {runAsUser: 5000}\n        containers:")
    (container,) = collectors(inject(text, S3))
    assert container["securityContext"]["runAsUser"] == 5000


def test_an_archive_in_a_directory_is_mounted() -> None:
    (document,) = documents(inject(HEAD, Sidecar(image="i", storage="file:///archive", pvc="shared")))
    (pod,) = pods(document)
    assert {"name": "ray-history-archive", "persistentVolumeClaim": {"claimName": "shared"}} in pod["spec"]["volumes"]
    assert {"name": "ray-history-archive", "mountPath": "/archive"} in pod["spec"]["containers"][1]["volumeMounts"]
    validate(document)


def test_event_types_and_intervals_chosen_by_the_user_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    text = HEAD + (
        "          env:\n"
        "          - {name: RAY_DASHBOARD_AGGREGATOR_AGENT_EXPOSABLE_EVENT_TYPES, value: TASK_LIFECYCLE_EVENT}\n"
        "          - {name: RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR, value: 'http://other'}\n"
        "          - {name: RAY_task_events_report_interval_ms, value: '500'}\n"
    )
    with caplog.at_level(logging.WARNING):
        (document,) = documents(inject(text, S3))
    ray = variables(next(containers(document)))
    assert ray["RAY_DASHBOARD_AGGREGATOR_AGENT_EXPOSABLE_EVENT_TYPES"] == "TASK_LIFECYCLE_EVENT"
    assert ray["RAY_task_events_report_interval_ms"] == "500"
    assert ray["RAY_ray_events_report_interval_ms"] == "100"
    assert ray["RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR"] == "http://127.0.0.1:8084/v1/events"
    assert "from 'http://other' to" in caplog.text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("{mode: disabled}", {}),
        (
            "{mode: token}",
            {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": {"secretKeyRef": {"name": "demo", "key": "auth_token"}}},
        ),
        (
            "{secretName: mine}",
            {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": {"secretKeyRef": {"name": "mine", "key": "auth_token"}}},
        ),
        (
            "{mode: token, enableK8sTokenAuth: true}",
            {"RAY_AUTH_MODE": "token", "RAY_ENABLE_K8S_TOKEN_AUTH": "true"},
        ),
    ],
)
def test_the_collector_gets_rays_token_as_ray_does(options: str, expected: dict[str, Any]) -> None:
    text = HEAD.replace("  headGroupSpec:", f"  authOptions: {options}\n  headGroupSpec:")
    (document,) = documents(inject(text, S3))
    (container,) = collectors(inject(text, S3))
    assert {name: value for name, value in variables(container).items() if "AUTH" in name} == expected
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert ("/var/run/secrets/ray.io/serviceaccount" in mounted) == ("RAY_ENABLE_K8S_TOKEN_AUTH" in expected)
    validate(document)


def test_all_resources_of_a_list_are_found() -> None:
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(HEAD), yaml.safe_load(HEAD)]})
    (document,) = documents(inject(text, S3))
    assert [len(list(containers(item))) for item in document["items"]] == [2, 2]


def test_a_job_on_another_cluster_is_left_alone() -> None:
    text = (
        "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: j}\nspec:\n  clusterSelector: {ray.io/cluster: demo}\n"
    )
    assert inject(text, S3) == text


def test_cron_jobs_are_supported() -> None:
    cluster = yaml.safe_load(HEAD)["spec"]
    spec = {"schedule": "0 3 * * *", "jobTemplate": {"entrypoint": "python x.py", "rayClusterSpec": cluster}}
    text = yaml.safe_dump({"apiVersion": "ray.io/v1", "kind": "RayCronJob", "metadata": {"name": "n"}, "spec": spec})
    (container,) = collectors(inject(text, S3))
    assert "OWNER_NAME" not in variables(container)


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00", exclude_categories=["Cc", "Cs"])))
@example("on")
@example("NO")
@example("0644")
@example("1e3")
@example("a: b # c")
@example("line\nline")
def test_values_of_variables_are_quoted(value: str) -> None:
    (container,) = collectors(inject(HEAD, Sidecar(image="i", storage="s3://b", env=(("GIVEN", value),))))
    assert variables(container)["GIVEN"] == value


def of_kuberay(manifest: str) -> str:
    """A RayCluster with the pods of one of KubeRay's sample manifests."""
    head, *workers = [sample for sample in COLLECTORS if sample.manifest == manifest]
    spec = {"headGroupSpec": group(head), "workerGroupSpecs": [group(worker, groupName="cpu") for worker in workers]}
    document = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "demo"}, "spec": spec}
    return yaml.safe_dump(document, sort_keys=False)


def group(sample: Sample, **more: str) -> Document:
    mount = {"name": "historyserver", "mountPath": "/tmp/ray"}
    ray = {"name": "ray", "image": "ray", "volumeMounts": [mount]}
    ray["env"] = [{"name": "RAY_DASHBOARD_AGGREGATOR_AGENT_EXPOSABLE_EVENT_TYPES", "value": "ALL"}]
    env = [{"name": name, "value": value} for name, value in sample.variables.items()]
    theirs = {"name": sample.name, "image": "collector:v0.1.0", "env": env, "volumeMounts": [mount]}
    pod = {"containers": [ray, theirs], "volumes": [{"name": "historyserver", "emptyDir": {}}]}
    return {**more, "rayStartParams": {}, "template": {"spec": pod}}


@pytest.mark.parametrize("manifest", sorted({sample.manifest for sample in COLLECTORS}))
def test_the_collector_of_kuberays_samples_is_replaced(manifest: str, caplog: pytest.LogCaptureFixture) -> None:
    once = inject(of_kuberay(manifest), S3)
    assert "replaced the collector 'collector'" in caplog.text
    (document,) = documents(once)
    for pod in pods(document):
        ray, ours = pod["spec"]["containers"]
        assert (ours["name"], ours["image"], ours["command"]) == (CONTAINER, "ray-history:0.1.0", ["collector"])
        assert len(ours["volumeMounts"]) == 1
        assert variables(ours)["STORAGE_BACKEND"]  # theirs stay: keys and endpoints are needed
        assert variables(ray)["RAY_DASHBOARD_AGGREGATOR_AGENT_EXPOSABLE_EVENT_TYPES"] == ",".join(EVENT_TYPES)
        collector_settings(ours, environment(ours, {}))
    assert inject(once, S3) == once


def test_the_flags_of_a_replaced_collector_are_kept() -> None:
    text = (
        HEAD
        + COLLECTOR.replace("collector]", "collector, --push-interval=5s]")
        + "          args: [--log-batching=7]\n"
    )
    (container,) = collectors(inject(text, S3))
    assert container["command"] == ["/usr/local/bin/collector", "--push-interval=5s"]
    assert container["args"] == ["--log-batching=7"]


COLLECTOR = "        - name: collector\n          image: old\n          command: [/usr/local/bin/collector]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "contains no RayCluster"),
        ("kind: Pod\napiVersion: v1\n", "contains no RayCluster"),
        ("a: [", "is not YAML"),
        ("a: 1\na: 2\n", "is not YAML"),
        (HEAD + COLLECTOR + COLLECTOR, "has several collectors (collector, collector): remove all but one"),
        (HEAD.replace("  headGroupSpec:", "  historyServerOptions: {}\n  headGroupSpec:"), "the operator adds"),
        (HEAD.replace("        containers:", "        nothing:"), "has no containers"),
        (
            HEAD.replace("        - name: ray-head\n          image: rayproject/ray:2.58.1", "        - x"),
            "is not a list",
        ),
        (HEAD + "          env: {A: b}\n", "env is not a list of mappings"),
        (HEAD.replace("spec:\n  head", "spec:\n  tail"), "has no headGroupSpec"),
        (HEAD.replace("kind: RayCluster", "kind: RayService"), "has no rayClusterConfig"),
        (
            HEAD.replace("containers:", "containers: &all")
            + "  workerGroupSpecs:\n  - groupName: w\n    template: {spec: {containers: *all}}\n",
            "shares its containers",
        ),
        (
            HEAD.replace("kind: RayCluster", "kind: RayJob")
            .replace("spec:\n  head", "spec:\n  rayClusterSpec:\n    authOptions: {mode: token}\n  head")
            .replace("  headGroupSpec", "    headGroupSpec: {a: b}\n  x"),
            "set authOptions.secretName",
        ),
    ],
)
def test_errors_say_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(CannotInject, match=re.escape(message)):
        inject(text, S3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no storage given"),
        ({"storage": "file:///archive"}, "must be given together"),
        ({"storage": "s3://b", "pvc": "c"}, "must be given together"),
    ],
)
def test_a_collector_without_an_archive_is_refused(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(CannotInject, match=message):
        Sidecar(image="i", **arguments)


# Any cluster that a user may have written.

words = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
comment = st.sampled_from(["", "# why\n", "\n# a heading\n", "\n"])


@st.composite
def pod_templates(draw: st.DrawFn) -> Document:
    ray: Document = {"name": "ray", "image": draw(words)}
    volumes = draw(st.lists(words, unique=True, max_size=2))
    if draw(st.booleans()):
        ray["env"] = [{"name": name.upper(), "value": draw(words)} for name in draw(st.lists(words, unique=True))]
    if volumes:
        ray["volumeMounts"] = [{"name": name, "mountPath": f"/mnt/{name}"} for name in volumes]
        if draw(st.booleans()):
            ray["volumeMounts"][0]["mountPath"] = draw(st.sampled_from(["/tmp", "/tmp/ray"]))
    others = [{"name": f"x{name}", "image": name} for name in draw(st.lists(words, unique=True, max_size=2))]
    spec: Document = {"containers": [ray, *others]}
    if volumes:
        spec["volumes"] = [{"name": name, "emptyDir": {}} for name in volumes]
    return {"spec": dict(draw(st.permutations(list(spec.items()))))}


@st.composite
def resources(draw: st.DrawFn) -> Document:
    worker = {"replicas": 1, "minReplicas": 0, "maxReplicas": 3, "rayStartParams": {}}
    cluster: Document = {
        "rayVersion": "2.58.1",
        "headGroupSpec": {"rayStartParams": {"dashboard-host": "0.0.0.0"}, "template": draw(pod_templates())},  # noqa: S104
        "workerGroupSpecs": [
            {"groupName": name, **worker, "template": draw(pod_templates())}
            for name in draw(st.lists(words, unique=True, max_size=3))
        ],
    }
    kind = draw(st.sampled_from(["RayCluster", "RayJob", "RayService"]))
    spec = {
        "RayCluster": cluster,
        "RayJob": {"entrypoint": "python x.py", "rayClusterSpec": cluster},
        "RayService": {"serveConfigV2": "applications: [{name: a}]", "rayClusterConfig": cluster},
    }[kind]
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": draw(words)}, "spec": spec}


@st.composite
def texts(draw: st.DrawFn) -> str:
    """YAML of several resources, with comments between its lines."""
    pieces = []
    for resource in draw(st.lists(resources(), min_size=1, max_size=2)):
        lines = yaml.safe_dump(resource, sort_keys=False).splitlines(keepends=True)
        pieces.append("".join(draw(comment) + line for line in lines))
    return "---\n".join(pieces)


@settings(deadline=None, max_examples=20)
@given(texts())
def test_any_cluster_gets_valid_collectors(text: str) -> None:
    once = inject(text, S3)
    assert inject(once, S3) == once
    assert re.findall(r"#.*", once) == re.findall(r"#.*", text)
    for before, after in zip(documents(text), documents(once), strict=True):
        validate(after)
        for pod, pod_before in zip(pods(after), pods(before), strict=True):
            names = [container["name"] for container in pod["spec"]["containers"]]
            assert names == [*(each["name"] for each in pod_before["spec"]["containers"]), CONTAINER]
            collector = pod["spec"]["containers"][-1]
            collector_settings(collector, environment(collector, {}))
            _keeps(pod_before, pod)


def _keeps(before: Any, after: Any) -> None:
    """Everything in `before` is also in `after`, unchanged."""
    if isinstance(before, dict):
        for key, value in before.items():
            _keeps(value, after[key])
    elif isinstance(before, list):
        for value, other in zip(before, after, strict=False):
            _keeps(value, other)
    else:
        assert before == after
