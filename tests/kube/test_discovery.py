"""Running clusters are listed and watched, and kept while Kubernetes does not answer."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ray_history.kube import Discovery, HeadResolver, HeadUnavailable, Kubernetes, Unreachable, head_resolver
from ray_history.kube import discovery as discovery_module
from ray_history.kube.ray_clusters import parse_ray_cluster as read
from tests.kube.world import World, stand_in_world
from tests.support.kube_stand_in import KubeStandIn, Person, Rule, ray_cluster

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[tuple[World, KubeStandIn]]:
    with stand_in_world(tmp_path) as found:
        assert found.stand_in is not None
        yield found, found.stand_in


@asynccontextmanager
async def discovering(world: World, *namespaces: str) -> AsyncIterator[Discovery]:
    kubernetes = world.kubernetes()
    discovery = Discovery(kubernetes, namespaces, first_pause=0.05)
    task = asyncio.create_task(discovery.run())
    try:
        yield discovery
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await world.close(kubernetes)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.02)


def names(discovery: Discovery) -> set[str]:
    return {cluster.name for cluster in discovery.clusters}


def test_created_and_deleted_clusters_are_noticed(world: World) -> None:
    async def story() -> None:
        await asyncio.to_thread(world.create, ray_cluster(world.namespace, "first"))
        async with discovering(world, world.namespace) as discovery:
            await until(lambda: names(discovery) == {"first"})
            assert discovery.missing == []
            await asyncio.to_thread(world.create, ray_cluster(world.namespace, "second", owner=("RayJob", "nightly")))
            await until(lambda: (discovery.find(world.namespace, "second") or NOBODY).head_service != "")
            second = discovery.find(world.namespace, "second")
            assert second is not None
            assert (second.owner_kind, second.owner_name) == ("rayjob", "nightly")
            assert second.head_service == "second-head-svc"
            await asyncio.to_thread(world.delete, "first")
            await until(lambda: names(discovery) == {"second"})

    asyncio.run(story())


def test_an_interrupted_watch_continues_without_a_list(stand_in: tuple[World, KubeStandIn]) -> None:
    world, server = stand_in

    async def story() -> None:
        async with discovering(world) as discovery:
            await until(lambda: server.watching == 1)
            server.put("RayCluster", ray_cluster("team", "one"))
            await until(lambda: names(discovery) == {"one"})
            server.end_watches()
            server.put("RayCluster", ray_cluster("other", "two"))
            await until(lambda: names(discovery) == {"one", "two"})
            assert discovery.lists == 1

    asyncio.run(story())


def test_after_an_expired_version_everything_is_listed_again(stand_in: tuple[World, KubeStandIn]) -> None:
    world, server = stand_in

    async def story() -> None:
        server.put("RayCluster", ray_cluster("team", "stays"))
        server.put("RayCluster", ray_cluster("team", "vanishes"))
        async with discovering(world) as discovery:
            await until(lambda: names(discovery) == {"stays", "vanishes"} and server.watching == 1)
            with server.down():
                server.delete("RayCluster", "team", "vanishes")
                server.compact()
            await until(lambda: names(discovery) == {"stays"})
            assert discovery.lists == 2
            await until(lambda: discovery.missing == [])

    asyncio.run(story())


def test_without_the_api_server_the_last_clusters_are_kept(stand_in: tuple[World, KubeStandIn]) -> None:
    world, server = stand_in

    async def story() -> None:
        server.put("RayCluster", ray_cluster("team", "one"))
        async with discovering(world) as discovery:
            await until(lambda: names(discovery) == {"one"} and server.watching == 1)
            with server.down():
                await until(lambda: any("may be out of date" in told for told in discovery.missing))
                assert names(discovery) == {"one"}
            await until(lambda: discovery.missing == [])
            server.put("RayCluster", ray_cluster("team", "two"))
            await until(lambda: names(discovery) == {"one", "two"})

    asyncio.run(story())


def test_missing_permission_is_reported_until_it_is_granted(
    stand_in: tuple[World, KubeStandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery_module, "_LONGEST_PAUSE", 0.1)
    world, server = stand_in
    server.people["weak"] = Person("history")
    world.kubeconfig.write_text(server.kubeconfig("weak"))
    server.put("RayCluster", ray_cluster("team", "one"))

    async def story() -> None:
        async with discovering(world) as discovery:
            await until(lambda: any("not allowed to list" in told for told in discovery.missing))
            assert "cannot list resource" in discovery.missing[0]
            assert discovery.clusters == []
            server.rules += [Rule("history", "list", "rayclusters"), Rule("history", "watch", "rayclusters")]
            await until(lambda: names(discovery) == {"one"} and discovery.missing == [])

    asyncio.run(story())


def test_without_permission_to_watch_clusters_are_listed_repeatedly(
    stand_in: tuple[World, KubeStandIn],
) -> None:
    world, server = stand_in
    server.people["weak"] = Person("history")
    server.rules += [Rule("history", "list", "rayclusters"), Rule("history", "get", "rayclusters")]
    world.kubeconfig.write_text(server.kubeconfig("weak"))
    server.put("RayCluster", ray_cluster("team", "one"))

    async def story() -> None:
        async with discovering(world) as discovery:
            discovery.list_interval = 0.05
            await until(lambda: names(discovery) == {"one"} and discovery.missing == [])
            server.put("RayCluster", ray_cluster("team", "two"))
            server.delete("RayCluster", "team", "one")
            await until(lambda: names(discovery) == {"two"} and discovery.missing == [])

    asyncio.run(story())


def test_each_configured_namespace_is_watched(stand_in: tuple[World, KubeStandIn]) -> None:
    world, server = stand_in
    for namespace in ("blue", "green", "red"):
        server.put("RayCluster", ray_cluster(namespace, namespace))
    server.people["weak"] = Person("history")
    server.rules += [Rule("history", verb, "rayclusters", "blue") for verb in ("list", "watch")]
    world.kubeconfig.write_text(server.kubeconfig("weak"))

    async def story() -> None:
        async with discovering(world, "blue", "green") as discovery:
            await until(lambda: names(discovery) == {"blue"} and len(discovery.missing) == 1)
            assert "namespace green" in discovery.missing[0]

    asyncio.run(story())


# Parsing of RayCluster objects.


def told(**changes: Any) -> dict[str, Any]:
    thing = ray_cluster("team", "demo", **changes)
    thing["metadata"] |= {"uid": "u1", "creationTimestamp": "2026-11-15T20:55:36Z"}
    return thing


def test_a_cluster_object_of_kuberay_is_parsed() -> None:
    cluster = read(told())
    assert cluster is not None
    assert cluster.created == 1794776136
    assert (cluster.port, cluster.authentication, cluster.owner_kind, cluster.ray_version) == (8265, "", None, "2.60.0")


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, {}, False),
        ({"suspend": True}, {}, True),
        ({"suspend": False}, {}, False),
        ({"suspend": "yes"}, {"conditions": "odd"}, False),
        ({}, {"conditions": [{"type": "RayClusterSuspended", "status": "True"}]}, True),
        ({}, {"conditions": [{"type": "RayClusterSuspended", "status": "False"}, None]}, False),
        ({}, {"conditions": [{"type": "RayClusterProvisioned", "status": "True"}]}, False),
    ],
)
def test_a_suspended_cluster_is_recognized(spec: dict[str, Any], status: dict[str, Any], expected: bool) -> None:
    cluster = read(told() | {"spec": spec, "status": status})
    assert cluster is not None
    assert cluster.is_suspended is expected


def test_the_port_is_that_of_the_head_container() -> None:
    ports = [{"name": "gcs", "containerPort": 6379}, {"name": "dashboard", "containerPort": 9000}]
    spec = {"headGroupSpec": {"template": {"spec": {"containers": [{"ports": ports}]}}}}
    assert (read(told(spec=spec)) or NOBODY).port == 9000


@pytest.mark.parametrize("malformed", [7, "x", [7], {"a": 1}, None])
def test_malformed_parts_count_as_absent(malformed: Any) -> None:
    thing = told(spec={"headGroupSpec": {"template": {"spec": {"containers": malformed}}}})
    thing["metadata"]["ownerReferences"] = malformed
    assert (read(thing) or NOBODY).owner_kind is None
    containers = [{"ports": malformed}]
    assert read(told(spec={"headGroupSpec": {"template": {"spec": {"containers": containers}}}})) is not None


@pytest.mark.parametrize("service", ["evil.example.com", "svc.other-namespace", "a/b", "x:80", "A", "-", "a" * 64])
def test_a_service_name_outside_of_the_namespace_is_ignored(service: str) -> None:
    assert (read(told(service=service)) or NOBODY).head_service == ""


@pytest.mark.parametrize(
    ("name", "secret"),
    [("demo", "demo"), ("1demo", "rdemo"), ("x" * 9 + "-" + "y" * 49, "r" + "y" * 49)],
)
def test_the_secret_is_named_as_the_operator_names_it(name: str, secret: str) -> None:
    thing = told(spec={"authOptions": {"mode": "token"}})
    thing["metadata"]["name"] = name
    cluster = read(thing) or NOBODY
    assert (cluster.authentication, cluster.secret) == ("token", secret)


@pytest.mark.parametrize("thing", [{}, {"metadata": None}, {"metadata": {"name": "x"}}, {"metadata": {"name": 1}}])
def test_other_objects_are_ignored(thing: dict[str, Any]) -> None:
    assert read(thing) is None


@pytest.mark.parametrize("part", ["spec", "status"])
@pytest.mark.parametrize("value", [None, [], "x", {"head": 5, "headGroupSpec": {"template": []}}])
def test_malformed_parts_are_treated_as_absent(part: str, value: Any) -> None:
    cluster = read(told() | {part: value})
    assert cluster is not None
    assert cluster.port == 8265


# Endpoints of heads.


def door_of(world: World, heads: HeadResolver, thing: dict[str, Any]) -> Any:
    cluster = read(thing)
    assert cluster is not None
    return world.ask(lambda kubernetes: heads.endpoint(kubernetes, cluster))


def test_the_head_is_reached_through_its_service(stand_in: tuple[World, KubeStandIn]) -> None:
    world, server = stand_in
    assert door_of(world, HeadResolver(), told()).address == "http://demo-head-svc.team.svc:8265"
    through = door_of(world, HeadResolver(through_api_server=True), told())
    assert through.address == f"{server.url}/api/v1/namespaces/team/services/demo-head-svc:dashboard/proxy"
    assert through.headers == {"Authorization": "Bearer admin-token"}
    with pytest.raises(HeadUnavailable, match="not ready"):
        door_of(world, HeadResolver(), told(service=None))


def test_the_clusters_own_token_is_read_from_its_secret_and_again_when_forgotten(
    stand_in: tuple[World, KubeStandIn],
) -> None:
    world, server = stand_in
    thing = told(spec={"authOptions": {"mode": "token", "secretName": "ray-token"}})
    cluster = read(thing)
    assert cluster is not None
    heads = HeadResolver(read_secrets=True)

    def secret(token: str) -> None:
        data = {"auth_token": base64.b64encode(token.encode()).decode()}
        server.put("Secret", {"metadata": {"namespace": "team", "name": "ray-token"}, "data": data})

    async def sent(kubernetes: Kubernetes) -> dict[str, str]:
        return (await heads.endpoint(kubernetes, cluster)).headers

    with pytest.raises(HeadUnavailable, match="cannot be read"):
        world.ask(sent)
    secret("one")
    assert world.ask(sent) == {"x-ray-authorization": "Bearer one"}
    secret("two")
    assert world.ask(sent) == {"x-ray-authorization": "Bearer one"}
    assert heads.forget_token(cluster)
    assert world.ask(sent) == {"x-ray-authorization": "Bearer two"}
    secret("bad\ntoken")
    heads.forget_token(cluster)
    with pytest.raises(HeadUnavailable, match="contains no"):
        world.ask(sent)


def test_the_last_token_is_used_while_the_api_server_does_not_answer(
    stand_in: tuple[World, KubeStandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, server = stand_in
    monkeypatch.setattr(head_resolver, "_TOKEN_MAX_AGE", 0.0)
    cluster = read(told(spec={"authOptions": {"mode": "token", "secretName": "ray-token"}}))
    assert cluster is not None
    heads = HeadResolver(read_secrets=True)
    data = {"auth_token": base64.b64encode(b"one").decode()}
    server.put("Secret", {"metadata": {"namespace": "team", "name": "ray-token"}, "data": data})

    async def sent(kubernetes: Kubernetes) -> dict[str, str]:
        return (await heads.endpoint(kubernetes, cluster)).headers

    assert world.ask(sent) == {"x-ray-authorization": "Bearer one"}
    with server.down():
        assert world.ask(sent) == {"x-ray-authorization": "Bearer one"}
    server.delete("Secret", "team", "ray-token")
    with pytest.raises(HeadUnavailable, match="cannot be read"):
        world.ask(sent)
    with server.down(), pytest.raises(Unreachable):  # a token that was taken away is not used again
        world.ask(sent)


def test_secrets_are_not_read_unless_allowed(stand_in: tuple[World, KubeStandIn]) -> None:
    world, server = stand_in
    with pytest.raises(HeadUnavailable, match="--use-auth-token-mode"):
        door_of(world, HeadResolver(), told(spec={"authOptions": {"mode": "token"}}))
    assert server.requests == []


def test_a_cluster_that_requires_kubernetes_tokens_gets_the_configured_one(
    stand_in: tuple[World, KubeStandIn], tmp_path: Path
) -> None:
    world, _ = stand_in
    thing = told(spec={"authOptions": {"mode": "token", "enableK8sTokenAuth": True}})
    with pytest.raises(HeadUnavailable, match="--ray-token-file"):
        door_of(world, HeadResolver(read_secrets=True), thing)
    (tmp_path / "given").write_text("given\n")
    assert door_of(world, HeadResolver(token_file=tmp_path / "given"), thing).headers == {
        "x-ray-authorization": "Bearer given"
    }


NOBODY = read({"metadata": {"namespace": "-", "name": "-"}})
assert NOBODY is not None
