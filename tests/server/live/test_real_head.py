"""A real Ray head that requires a token: shown live, followed, killed, and shown from the archive."""

from __future__ import annotations

import base64
import http.client
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from ray_history.archive.catalog import read_catalog
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store
from ray_history.kube import Discovery, HeadResolver, Kubernetes, from_kubeconfig
from ray_history.server.app import AppConfig
from ray_history.server.live import Fleet, HeadClient
from tests.collector.collector_process import CollectorProcess
from tests.server.serving import Served, served
from tests.support.kube_stand_in import KubeStandIn, ray_cluster
from tests.support.ray_cluster import RayCluster
from tests.support.ray_versions import needs_ray
from tests.support.waiting import until

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(900),
    needs_ray("2.52", "RAY_AUTH_MODE"),
]

TOKEN = "the-token-of-this-cluster-0123456789"
NOTE = "x-ray-history-note"
LIVE = "/s/default/oracle/live"
JOB = """
import pathlib, ray, sys, time
ray.init()

@ray.remote
def leaf(n):
    return n

assert ray.get([leaf.remote(n) for n in range(3)]) == [0, 1, 2]
print("the first line", flush=True)
go = pathlib.Path(__file__).with_suffix(".go")
while not go.exists():
    time.sleep(0.1)
print("the last line", flush=True)
"""


@dataclass
class Scene:
    """The parts of a cluster on Kubernetes."""

    ray: RayCluster
    collector: CollectorProcess
    kube: KubeStandIn
    server: Served
    through_api_server: Served
    store: Store

    def rows(self, path: str) -> list[dict[str, Any]]:
        return self.server.get(f"{LIVE}{path}").rows


@pytest.fixture(scope="module")
def scene(real_ray: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("head")
    ray = RayCluster(TOKEN)
    store = open_store(resolve((folder / "archive").as_uri(), Upstream(), {}))
    flags = (f"--ray-tmp-root={ray.root}", f"--ray-dashboard-address={ray.dashboard}")
    try:
        with (
            CollectorProcess(folder / "collector", store.url, *flags, env={"RAY_AUTH_TOKEN": TOKEN}) as collector,
            KubeStandIn().running() as kube,
        ):
            ray.start_head(collector.port)
            kube.backends["default", "oracle-head-svc"] = f"127.0.0.1:{ray.dashboard_port}"
            data = {"auth_token": base64.b64encode(TOKEN.encode()).decode()}
            kube.put("Secret", {"metadata": {"namespace": "default", "name": "oracle"}, "data": data})
            kube.put("RayCluster", ray_cluster("default", "oracle", spec={"authOptions": {"mode": "token"}}))
            (folder / "kubeconfig").write_text(kube.kubeconfig())
            direct = {"address": lambda _: ray.dashboard}
            with (
                served(store, folder / "one", AppConfig(fleet=fleet(folder, **direct))) as server,
                served(store, folder / "two", AppConfig(fleet=fleet(folder, through_api_server=True))) as through,
            ):
                for each in (server, through):
                    until(lambda each=each: "live" in {row["sessionName"] for row in each.get("/clusters").json})
                yield Scene(ray, collector, kube, server, through, store)
    finally:
        ray.remove()


def fleet(folder: Path, **ways: Any) -> Fleet:
    kubernetes = Kubernetes(from_kubeconfig([folder / "kubeconfig"]))
    return Fleet([Discovery(kubernetes, first_pause=0.1)], HeadClient(HeadResolver(read_secrets=True, **ways)))


def test_the_head_itself_wants_a_token(scene: Scene) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{scene.ray.dashboard}/api/v0/nodes", timeout=60)


@pytest.mark.parametrize("way", ["server", "through_api_server"])
def test_the_dashboard_of_a_running_cluster_is_shown(scene: Scene, way: str) -> None:
    server: Served = getattr(scene, way)
    version = server.get(f"{LIVE}/api/version")
    assert NOTE not in version.headers
    assert version.json["session_name"] == scene.ray.session.name
    nodes = server.get(f"{LIVE}/nodes?view=summary").json["data"]["summary"]
    assert [node["raylet"]["isHeadNode"] for node in nodes] == [True]
    assert len(server.get(f"{LIVE}/api/v0/nodes?detail=1").rows) == 1
    assert server.get(f"{LIVE}/api/cluster_status?format=1").status == 200
    assert b"<html" in server.get(f"{LIVE}/").body
    assert server.get(f"{LIVE}/api/v0/nodes", method="HEAD").status in (200, 405)


def test_a_running_job_is_listed_and_its_log_followed(scene: Scene) -> None:
    scene.ray.submit(JOB, scene.collector.port, submission_id="watched", wait=False)
    until(lambda: b"the first line" in scene.server.get(f"{LIVE}/api/jobs/watched/logs").body)
    until(lambda: len(scene.rows("/api/v0/tasks?filter_keys=name&filter_predicates=%3D&filter_values=leaf")) == 3)
    connection = http.client.HTTPConnection("127.0.0.1", scene.server.port, timeout=120)
    url = f"ws://127.0.0.1:{scene.through_api_server.port}{LIVE}/api/jobs/watched/logs/tail"
    try:
        node = scene.rows("/api/v0/nodes")[0]["node_id"]
        path = f"{LIVE}/api/v0/logs/stream?node_id={node}&filename=job-driver-watched.log"
        connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        seen = b""
        while b"the first line" not in seen:
            seen += response.readline()
        with connect(url, open_timeout=120) as socket:
            heard = socket.recv(120)
            while "the first line" not in heard:
                heard += socket.recv(120)
            (scene.ray.root / "watched.go").touch()
            while "the last line" not in heard:
                heard += socket.recv(120)
        while b"the last line" not in seen:
            seen += response.readline()
    finally:
        connection.close()
    until(lambda: scene.server.get(f"{LIVE}/api/jobs/watched").json["status"] == "SUCCEEDED")


def test_the_running_session_is_listed_once_and_opens_from_the_archive_by_name(scene: Scene) -> None:
    name = scene.ray.session.name
    until(lambda: name in {session.name for session in read_catalog(scene.store).sessions})
    until(lambda: [row["sessionName"] for row in scene.server.get("/clusters").json] == ["live"])
    stored = f"/s/default/oracle/{name}/api/v0/tasks?filter_keys=name&filter_predicates=%3D&filter_values=leaf"
    until(lambda: len(scene.server.get(stored).rows) == 3)


def test_when_the_head_dies_the_archive_is_shown_with_a_note(scene: Scene) -> None:
    name = scene.ray.session.name
    leaves = f"{LIVE}/api/v0/tasks?filter_keys=name&filter_predicates=%3D&filter_values=leaf"
    assert NOTE not in scene.server.get(leaves).headers
    scene.ray.kill()
    for server in (scene.server, scene.through_api_server):
        answer = server.get(leaves)
        assert "cannot be reached" in answer.headers[NOTE] or "cannot reach its head" in answer.headers[NOTE]
        assert name in answer.headers[NOTE]
        assert len(answer.rows) == 3
        assert server.get(f"{LIVE}/_status").json["note"] == answer.headers[NOTE]
        assert b"<html" in server.get(f"{LIVE}/").body
    scene.kube.delete("RayCluster", "default", "oracle")
    until(lambda: [row["sessionName"] for row in scene.server.get("/clusters").json] == [name])
    gone = scene.server.get(leaves)
    assert "no longer running" in gone.headers[NOTE]
    assert len(gone.rows) == 3
