"""The image, built by the instructions of its Dockerfile and run as a pod runs it.

There is no container engine here; `tests.support.image` stands in for one: UID 1000 without capabilities, a root that
nobody can write to, only what a manifest mounts to write to, and only the declared variables.
"""

from __future__ import annotations

import json
import shutil
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history import __version__
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import open_store
from ray_history.inject.inject import Sidecar, inject
from tests.conftest import s3_variables
from tests.deploy.command_lines import environment
from tests.deploy.documents import MANIFESTS, ROOT, containers, documents
from tests.deploy.test_dockerfile import DOCKERFILE
from tests.support.captured import captured, write_archive
from tests.support.fixtures import skip_or_fail
from tests.support.image import Image, Stage, read_dockerfile
from tests.support.processes import PartUnavailable, Process, free_port, free_ports
from tests.support.ray_cluster import RayCluster
from tests.support.seaweedfs import SeaweedFS
from tests.support.waiting import until

pytestmark = [pytest.mark.xdist_group("image"), pytest.mark.timeout(900)]

RAY = "2.60.0"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    folder = tmp_path_factory.mktemp("image")
    made = Image(DOCKERFILE, ROOT, folder, {"RAY_VERSIONS": RAY})
    try:
        made.build()
    except PartUnavailable as reason:
        skip_or_fail("a stand-in for a container engine", reason)
    yield made
    shutil.rmtree(folder)  # some 200 MB


def mounts(path: Path, name: str) -> list[str]:
    """The writable directories of a container in a manifest."""
    (first, *_) = [
        each for document in documents(path.read_text()) for each in containers(document) if each["name"] == name
    ]
    assert first["securityContext"]["readOnlyRootFilesystem"]
    return [mount["mountPath"] for mount in first["volumeMounts"]]


SERVER_MOUNTS = mounts(MANIFESTS / "base" / "server.yaml", "historyserver")
OWN_CLUSTER = MANIFESTS / "samples" / "rayjob-own-cluster.yaml"
COLLECTOR_MOUNTS = mounts(MANIFESTS / "samples" / "raycluster.yaml", "ray-history-collector")


def answer(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        return str(response.read().decode())


def answers(url: str) -> bool:
    try:
        answer(url)
    except (urllib.error.URLError, OSError):
        return False
    return True


def ended(process: Process) -> int | None:
    """The exit code after SIGTERM."""
    child = process._child
    assert child is not None
    child.send_signal(signal.SIGTERM)
    return child.wait(60)


def test_stage_names_are_found(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("FROM a AS b\nRUN x \\\n # why\n && y\nFROM c\nENV A=1 \\\n  B='2 3'\n")
    first, last = read_dockerfile(tmp_path / "f")
    assert first == Stage("a", "b", [("RUN", "x   && y")])
    assert last.variables() == {"A": "1", "B": "2 3"}


@pytest.mark.parametrize("program", ["ray-history", "/usr/local/bin/ray-history"])
def test_the_programs_are_where_kuberay_has_them(image: Image, program: str) -> None:
    assert image.run(program, "--version").stdout.strip().endswith(__version__)
    assert "--runtime-class-name" in image.run("/usr/local/bin/collector", "--help").stdout
    assert "--runtime-class-name" in image.run("/usr/local/bin/historyserver", "--help").stdout


def test_it_has_no_rights_and_nothing_to_write_to(image: Image) -> None:
    printed = image.run("sh", "-c", "id -u; id -g; grep CapEff /proc/self/status; touch /x /opt/ray-history/x /tmp/x")
    assert printed.stdout.split() == ["1000", "1000", "CapEff:", "0000000000000000"]
    assert printed.stderr.count("Read-only file system") == 3


def test_no_installer_is_left(image: Image) -> None:
    assert "No module named pip" in image.run("python", "-m", "pip").stderr
    assert "No module named pip" in image.run("/opt/ray-history/bin/python", "-m", "pip").stderr


def test_the_dashboards_pages_are_inside(image: Image) -> None:
    assert image.run("ray-history", "dashboard", "list").stdout.split()[0] == RAY


def test_packages_keep_their_metadata_for_a_bill_of_materials(image: Image) -> None:
    script = "import importlib.metadata as m, json; print(json.dumps([d.metadata['Name'] for d in m.distributions()]))"
    names = json.loads(image.run("/opt/ray-history/bin/python", "-c", script).stdout)
    assert {"ray-history", "duckdb", "obstore", "starlette"} <= set(names)


@pytest.fixture
def storage(seaweedfs: SeaweedFS, tmp_path: Path) -> dict[str, str]:
    """The variables of a new bucket."""
    return {**s3_variables(seaweedfs), "S3_BUCKET": f"image-{abs(hash(tmp_path))}"}


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        # KubeRay's operator: an image without a command, and variables.
        ([], {"STORAGE_BACKEND": "s3", "RAY_ROLE": "Head", "RAY_CLUSTER_NAME": "demo", "OWNER_KIND": "RayJob"}),
        # The users' guide to KubeRay's history server.
        (
            ["collector", "--role=Head", "--runtime-class-name=s3", "--ray-cluster-name=demo", "--ray-root-dir=log"],
            {"POD_IP": "127.0.0.1", "RAY_TMP_ROOT": "/tmp/ray"},
        ),
        (["ray-history", "collect", "--cluster=demo", "--role=Worker", "--storage-backend=s3"], {}),
    ],
    ids=["operator", "guide", "ours"],
)
def test_a_collector_starts_with_only_rays_directory_to_write_to_and_ends_well(
    image: Image, storage: dict[str, str], tmp_path: Path, words: list[str], variables: dict[str, str]
) -> None:
    port = free_port()
    env = {**storage, **variables, "EVENTS_PORT": str(port)}
    if "OWNER_KIND" in env:
        env["OWNER_NAME"] = "nightly"
    url = f"http://127.0.0.1:{port}"
    collector = image.process(
        *words,
        log=tmp_path / "log",
        ready=lambda: answers(f"{url}/readyz"),
        env=env,
        writable=COLLECTOR_MOUNTS,
    )
    with collector:
        batch = urllib.request.Request(
            f"{url}/v1/events", data=b"[]", headers={"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(batch, timeout=30) as response:
            assert response.status < 300
        code = ended(collector)
    assert code == 0, collector.log_tail()


@pytest.mark.parametrize(
    "words",
    [
        ["historyserver", "--runtime-class-name=s3", "--ray-root-dir=log"],
        ["historyserver", "-storage-backend=s3", "--storage-root-dir=log", "--use-kubernetes-proxy=false"],
        ["--session-cache-max-memory=8Gi", "--runtime-class-name=s3", "--ray-root-dir=log"],
    ],
    ids=["guide", "new", "flags alone"],
)
def test_a_server_shows_a_session_with_only_its_cache_and_tmp_to_write_to(
    image: Image, storage: dict[str, str], tmp_path: Path, words: list[str]
) -> None:
    store = open_store(resolve(f"s3://{storage['S3_BUCKET']}/log", Upstream(), storage))
    store.check(create=True)
    write_archive(store, Generation.C, Cluster("default", "demo"))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server = image.process(
        *words,
        log=tmp_path / "log",
        ready=lambda: answers(f"{url}/readyz"),
        env={**storage, "RAY_HISTORY_PORT": str(port), "RAY_HISTORY_HOST": "127.0.0.1"},
        writable=SERVER_MOUNTS,
    )
    with server:
        session = f"{url}/s/default/demo/latest"
        assert [entry["sessionName"] for entry in json.loads(answer(f"{url}/clusters"))] == [captured().session]
        assert json.loads(answer(f"{session}/api/v0/tasks?detail=1"))["data"]["result"]["result"]
        assert '<div id="root">' in answer(f"{session}/")
        code = ended(server)
    assert code in (0, -signal.SIGTERM), server.log_tail()


CLUSTER = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {{name: demo}}
spec:
  headGroupSpec:
    rayStartParams: {{temp-dir: {root}}}
    template: {{spec: {{containers: [{{name: ray-head, image: ray}}]}}}}
"""


@pytest.fixture
def ray(real_ray: str) -> Iterator[RayCluster]:
    cluster = RayCluster()
    yield cluster
    cluster.remove()


def is_polled(storage: dict[str, str], words: bytes) -> bool:
    """Whether a polled snapshot with this text is in the bucket."""
    store = open_store(resolve(f"s3://{storage['S3_BUCKET']}", Upstream(), storage))
    polled = [each.key for each in store.list("") if "/fetched_endpoints/" in each.key and "jobs" in each.key]
    return any(words in store.get(key) for key in polled)


def test_an_injected_pod_is_seen_after_its_end(
    image: Image, ray: RayCluster, storage: dict[str, str], tmp_path: Path
) -> None:
    """A real Ray with the variables from `inject`, and the image as the sidecar from `inject`."""
    events, port = free_ports(2)
    env = (*storage.items(), ("RAY_DASHBOARD_ADDRESS", ray.dashboard))
    sidecar = Sidecar(image="ours", storage=f"s3://{storage['S3_BUCKET']}", env=env, port=events)
    (document,) = documents(inject(CLUSTER.format(root=ray.root), sidecar))
    head, collector = containers(document)
    assert environment(head, {}).items() <= ray.environment(events).items()
    ray.root.chmod(0o777)  # as an emptyDir is
    (job,) = [each for each in documents(OWN_CLUSTER.read_text()) if each["kind"] == "ConfigMap"]

    sidecar_process = image.process(
        *collector["command"],
        log=tmp_path / "collector.log",
        ready=lambda: answers(f"http://127.0.0.1:{events}/readyz"),
        env=environment(collector, {}),
        shared=[Path(mount["mountPath"]) for mount in collector["volumeMounts"]],
    )
    with sidecar_process:
        ray.start_head(events)
        ray.submit(job["data"]["work.py"], events, submission_id="work")
        until(lambda: is_polled(storage, b"SUCCEEDED"), "the job's end is polled")  # events do not tell it
        ray.end()
        assert ended(sidecar_process) == 0, sidecar_process.log_tail()

    url = f"http://127.0.0.1:{port}"
    server = image.process(
        *("ray-history", "serve", f"--storage=s3://{storage['S3_BUCKET']}", f"--port={port}"),
        log=tmp_path / "server.log",
        ready=lambda: answers(f"{url}/readyz"),
        env=storage,
        writable=SERVER_MOUNTS,
    )
    with server:
        session = f"{url}/s/default/demo/latest"
        tasks = json.loads(answer(f"{session}/api/v0/tasks?detail=1&limit=1000"))["data"]["result"]["result"]
        finished = [task["name"] for task in tasks if task["state"] == "FINISHED"]
        assert finished.count("square") == 10
        assert finished.count("Counter.add") == 10
        (submitted,) = json.loads(answer(f"{session}/api/jobs/"))
        assert submitted["status"] == "SUCCEEDED"
        logs = json.loads(answer(f"{session}/api/jobs/{submitted['submission_id']}/logs"))["logs"]
        assert "sum of squares: 285" in logs
