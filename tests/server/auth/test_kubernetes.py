"""`--auth kubernetes`: a stand-in for the API server identifies users and decides on access; without it: 503."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive.stores import Store
from ray_history.kube import Kubernetes, from_kubeconfig
from ray_history.server.auth.credentials import TrustedPeers
from ray_history.server.auth.kubernetes import AnswerCache, KubernetesTokens, parse_access
from tests.server.auth.people import SESSION, Asking, Clock, asking, bearer
from tests.support.kube_stand_in import KubeStandIn, Person, Rule

DEFAULT = f"/s/default/demo/{SESSION}/api/v0/nodes"
LOCKED = f"/s/locked/demo/{SESSION}/api/v0/nodes"
SERVER = "https://kubernetes.default.svc"


@pytest.fixture
def api() -> Iterator[KubeStandIn]:
    people = {
        "admin-token": Person("admin", ("system:masters",)),
        "ada-token": Person("ada"),
        "bob-token": Person("bob", ("night-watch",)),
        "eve-token": Person("eve"),
        "named-token": Person("named"),
        "meant-for-us": Person("ada", audiences=("ray-history",)),
    }
    rules = [
        Rule("admin", "*", "*"),
        Rule("ada", "get", "rayclusters", "default"),
        Rule("group:night-watch", "get", "rayclusters", "locked"),
        Rule("named", "get", "rayclusters", "default", "demo"),
        Rule("eve", "list", "rayclusters"),
    ]
    with KubeStandIn(people=people, rules=rules).running() as server:
        yield server


@contextmanager
def asking_kubernetes(
    folder: Path, api: KubeStandIn, store: Store, access: str = "get rayclusters.ray.io", **how: Any
) -> Iterator[tuple[Asking, Clock]]:
    (folder / "kubeconfig").write_text(api.kubeconfig())
    clock = Clock()
    kubernetes = Kubernetes(from_kubeconfig([folder / "kubeconfig"]), timeout=10)
    mode = KubernetesTokens(kubernetes, TrustedPeers.parse("127.0.0.1"), parse_access(access), clock=clock, **how)
    with asking(folder, mode, store) as server:
        yield server, clock


def reviews(api: KubeStandIn) -> Counter[str]:
    return Counter(path.rpartition("/")[2] for _, path, _ in api.requests)


def test_a_user_sees_the_namespaces_where_they_may_get_rayclusters(
    api: KubeStandIn, tmp_path: Path, store: Store
) -> None:
    with asking_kubernetes(tmp_path, api, store) as (server, _):
        statuses = {
            name: tuple(server.get(path, bearer(f"{name}-token")).status_code for path in (DEFAULT, LOCKED))
            for name in ("admin", "ada", "bob", "eve", "nobody", "named")
        }
        seen = {
            name: {row["namespace"] for row in server.get("/clusters", bearer(f"{name}-token")).json()}
            for name in ("admin", "ada", "bob", "eve")
        }
    assert statuses == {
        "admin": (200, 200),
        "ada": (200, 404),
        "bob": (404, 200),
        "eve": (404, 404),
        "nobody": (403, 403),
        "named": (404, 404),
    }
    assert seen == {"admin": {"default", "locked"}, "ada": {"default"}, "bob": {"locked"}, "eve": set()}


def test_with_scope_cluster_permission_for_one_cluster_is_enough(
    api: KubeStandIn, tmp_path: Path, store: Store
) -> None:
    with asking_kubernetes(tmp_path, api, store, each_cluster=True) as (server, _):
        assert server.get(DEFAULT, bearer("named-token")).status_code == 200
        assert server.get(LOCKED, bearer("named-token")).status_code == 404


def test_another_permission_can_be_configured(api: KubeStandIn, tmp_path: Path, store: Store) -> None:
    with asking_kubernetes(tmp_path, api, store, "list rayclusters.ray.io") as (server, _):
        assert server.get(DEFAULT, bearer("eve-token")).status_code == 200
        assert server.get(DEFAULT, bearer("ada-token")).status_code == 404


@pytest.mark.parametrize(
    "text", ["get", "get rayclusters.ray.io extra", "GET rayclusters", "", "get rayclusters; drop"]
)
def test_an_invalid_permission_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="VERB RESOURCE"):
        parse_access(text)


def test_a_permission_is_written_as_in_kubectl() -> None:
    wanted = parse_access("get rayclusters.ray.io/status")
    assert (wanted.verb, wanted.resource, wanted.group, wanted.subresource) == (
        "get",
        "rayclusters",
        "ray.io",
        "status",
    )
    assert parse_access("list pods").group == ""


def test_with_an_audience_only_tokens_for_it_are_accepted(api: KubeStandIn, tmp_path: Path, store: Store) -> None:
    with asking_kubernetes(tmp_path, api, store, audiences=("ray-history",)) as (server, _):
        assert server.get(DEFAULT, bearer("meant-for-us")).status_code == 200
        assert server.get(DEFAULT, bearer("ada-token")).status_code == 403


def test_answers_are_cached_until_they_expire(api: KubeStandIn, tmp_path: Path, store: Store) -> None:
    with asking_kubernetes(tmp_path, api, store, seconds=60) as (server, clock):
        for _ in range(5):
            assert server.get(DEFAULT, bearer("ada-token")).status_code == 200
        assert reviews(api)["tokenreviews"] == 1
        assert reviews(api)["subjectaccessreviews"] == 2, "everywhere, and in the namespace"

        del api.people["ada-token"]
        clock.now += 59
        assert server.get(DEFAULT, bearer("ada-token")).status_code == 200
        clock.now += 2
        assert server.get(DEFAULT, bearer("ada-token")).status_code == 403


def test_refusals_expire_earlier(api: KubeStandIn, tmp_path: Path, store: Store) -> None:
    with asking_kubernetes(tmp_path, api, store, seconds=60) as (server, clock):
        assert server.get(LOCKED, bearer("ada-token")).status_code == 404
        assert server.get(DEFAULT, bearer("late-token")).status_code == 403
        api.rules.append(Rule("ada", "get", "rayclusters", "locked"))
        api.people["late-token"] = Person("ada")
        asked = len(api.requests)
        assert server.get(LOCKED, bearer("ada-token")).status_code == 404
        assert server.get(DEFAULT, bearer("late-token")).status_code == 403
        assert len(api.requests) == asked
        clock.now += 11
        assert server.get(LOCKED, bearer("ada-token")).status_code == 200
        assert server.get(DEFAULT, bearer("late-token")).status_code == 200


def test_concurrent_requests_share_one_review(api: KubeStandIn, tmp_path: Path, store: Store) -> None:
    with asking_kubernetes(tmp_path, api, store) as (server, _), ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda _: server.get("/clusters", bearer("ada-token")).status_code, range(24)))
    assert set(answers) == {200}
    assert reviews(api)["tokenreviews"] == 1


def test_without_the_api_server_only_cached_viewers_have_access(api: KubeStandIn, tmp_path: Path, store: Store) -> None:
    with asking_kubernetes(tmp_path, api, store, seconds=60) as (server, clock):
        assert server.get(DEFAULT, bearer("ada-token")).status_code == 200
        with api.down():
            assert server.get(DEFAULT, bearer("ada-token")).status_code == 200, "known for a minute"
            assert server.get(LOCKED, bearer("ada-token")).status_code == 503, "not known yet"
            for path in (DEFAULT, "/clusters", f"/enter_cluster/default/demo/{SESSION}"):
                answer = server.get(path, bearer("bob-token"))
                assert answer.status_code == 503
                assert "try again later" in answer.json()["msg"]
                assert str(api.port) not in answer.text, "where the API server is concerns nobody"
            assert server.post("/login", token="bob-token").status_code == 503
            clock.now += 61
            assert server.get(DEFAULT, bearer("ada-token")).status_code == 503
            assert server.get("/livez").status_code == 200
            assert server.get(DEFAULT).status_code == 401
        assert server.get(DEFAULT, bearer("ada-token")).status_code == 200, "a failure is not kept"


def test_without_permission_to_review_there_is_no_access(api: KubeStandIn, tmp_path: Path, store: Store) -> None:
    api.rules[:] = [rule for rule in api.rules if rule.user != "admin"]
    with asking_kubernetes(tmp_path, api, store) as (server, _):
        assert server.get(DEFAULT, bearer("ada-token")).status_code == 503


def test_wrong_tokens_slow_down_unknown_tokens_of_their_address_only(
    api: KubeStandIn, tmp_path: Path, store: Store
) -> None:
    with asking_kubernetes(tmp_path, api, store) as (server, clock):
        assert server.get(DEFAULT, bearer("ada-token")).status_code == 200
        clock.now += 30
        for number in range(100):
            assert server.get("/clusters", bearer(f"guess-{number}")).status_code == 403
        clock.now += 31  # now the answer about Ada has expired, and the failures have not
        asked = reviews(api)["tokenreviews"]
        with ThreadPoolExecutor(20) as threads:
            guesses = [threads.submit(server.get, "/clusters", bearer(f"again-{number}")) for number in range(20)]
            assert server.get(DEFAULT, bearer("ada-token")).status_code == 200, "accepted within the last hour"
            assert server.get(DEFAULT, {**bearer("bob-token"), "X-Forwarded-For": "192.0.2.1"}).status_code == 404
            assert server.get("/clusters", bearer("named-token")).status_code == 200, "right, and never seen before"
            assert {guess.result().status_code for guess in guesses} == {403}
        assert reviews(api)["tokenreviews"] - asked == 23


def test_invalid_kubernetes_names_are_not_reviewed(api: KubeStandIn, tmp_path: Path, store: Store) -> None:
    with asking_kubernetes(tmp_path, api, store) as (server, _):
        server.get("/clusters", bearer("ada-token"))
        asked = len(api.requests)
        for name in ("..%2f..", "A_B", "x" * 300, "%20", "%00"):
            assert server.get(f"/s/{name}/demo/latest/api/v0/nodes", bearer("ada-token")).status_code == 404
        assert len(api.requests) == asked


def test_a_failure_reaches_all_waiters_and_is_not_cached() -> None:
    async def run() -> list[Any]:
        kept: AnswerCache[str] = AnswerCache(lambda _: 60.0, Clock())
        gate = asyncio.Event()
        asked = 0

        async def question() -> str:
            nonlocal asked
            asked += 1
            await gate.wait()
            if asked == 1:
                raise OSError("down")
            return "answer"

        waiting = [asyncio.create_task(kept.ask("key", question)) for _ in range(3)]
        await asyncio.sleep(0)
        gate.set()
        first = await asyncio.gather(*waiting, return_exceptions=True)
        return [*map(type, first), await kept.ask("key", question), await kept.ask("key", question), asked]

    assert asyncio.run(run()) == [OSError, OSError, OSError, "answer", "answer", 2]


def test_a_cancelled_waiter_does_not_cancel_the_call_for_others() -> None:
    async def run() -> str:
        kept: AnswerCache[str] = AnswerCache(lambda _: 60.0, Clock())
        gate = asyncio.Event()

        async def question() -> str:
            await gate.wait()
            return "answer"

        leaving = asyncio.create_task(kept.ask("key", question))
        staying = asyncio.create_task(kept.ask("key", question))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        gate.set()
        return await staying

    assert asyncio.run(run()) == "answer"
