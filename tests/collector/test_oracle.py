"""Every acknowledged event is in the bucket, whatever happens to collector, store and disk; and nothing else is."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from ray_history.archive.catalog import read_catalog
from ray_history.archive.event_files import Problem
from ray_history.archive.session_files import events_of, list_session
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store
from tests.collector.collector_process import SESSION, AgentStandIn, CollectorProcess
from tests.conftest import s3_variables
from tests.support.fixtures import FaultProxyFactory
from tests.support.seaweedfs import SeaweedFS
from tests.support.waiting import until

RUNS = int(os.environ.get("ORACLE_RUNS", "2"))
"""Random lives of a collector; set ORACLE_RUNS=200 for a long look."""

LONGEST_PUT = 2.0 if "ORACLE_RUNS" not in os.environ else 0.5
"""Seconds that one PUT may take; more where other tests run at the same time."""

NO_RAY = ("--enable-log-collector=false", "--ray-tmp-root=/nonexistent")


def stored_ids(store: Store) -> Counter[str]:
    problems: list[Problem] = []
    found: Counter[str] = Counter()
    for session in read_catalog(store).sessions:
        found.update(json.loads(raw)["eventId"] for raw in events_of(store, list_session(store, session), problems))
    assert problems == []
    return found


def assert_nothing_lost_nothing_invented(agent: AgentStandIn, store: Store) -> None:
    found = stored_ids(store)
    assert agent.acknowledged - set(found) == set(), "acknowledged and lost"
    assert set(found) - agent.sent == set(), "never sent"
    assert agent.acknowledged


@pytest.mark.parametrize("seed", range(RUNS))
def test_killed_at_random_points_it_loses_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    archive = tmp_path / "archive"
    with CollectorProcess(tmp_path / "collector", archive.as_uri(), *NO_RAY) as collector:
        agent = AgentStandIn(collector.port, seed=seed)
        agent.start()
        for _ in range(5):
            time.sleep(chance.uniform(0.0, 1.2))
            collector.kill9()
            time.sleep(chance.uniform(0.0, 0.2))
            collector.start()
        time.sleep(0.5)
        agent.stop()
        collector.end()
    assert_nothing_lost_nothing_invented(agent, open_store(resolve(archive.as_uri(), Upstream(), {})))
    assert list((tmp_path / "collector" / "data" / "spool").glob("*.corrupt*")) == []


def test_a_store_that_fails_stalls_and_dies_delays_and_never_loses(
    tmp_path: Path, seaweedfs: SeaweedFS, fault_proxy: FaultProxyFactory
) -> None:
    proxy = fault_proxy(seaweedfs.endpoint)
    variables = s3_variables(seaweedfs)
    proxy.refuse()  # down before it was ever reached
    through_proxy = {**variables, "S3_ENDPOINT": proxy.url}
    with CollectorProcess(tmp_path / "collector", "s3://oracle/failing", *NO_RAY, env=through_proxy) as collector:
        agent = AgentStandIn(collector.port)
        agent.start()
        time.sleep(1)
        assert agent.acknowledged, "events are taken before the store is reached"
        proxy.answer_5xx(5)
        time.sleep(1)
        proxy.truncate(10, times=3, method="PUT")
        time.sleep(1)
        proxy.lose_answer(2, method="PUT")
        time.sleep(1)
        proxy.hang(times=1)
        time.sleep(1)
        collector.kill9()
        proxy.refuse()
        collector.start()
        time.sleep(1)
        proxy.pass_through()
        agent.stop()
        collector.end()
    store = open_store(resolve("s3://oracle/failing", Upstream(), variables))
    assert_nothing_lost_nothing_invented(agent, store)


@pytest.mark.parametrize("seed", range(RUNS))
def test_a_lost_pod_takes_only_events_of_the_last_two_seconds(tmp_path: Path, seaweedfs: SeaweedFS, seed: int) -> None:
    chance, variables, storage = random.Random(seed), s3_variables(seaweedfs), f"s3://oracle/lost-{seed}"
    # Most events are in journals only when this push interval is cut off, some in event files.
    flags = (*NO_RAY, f"--push-interval={chance.choice(['3s', '1h'])}")
    with CollectorProcess(tmp_path / "collector", storage, *flags, env=variables) as collector:
        agent = AgentStandIn(collector.port, seed=seed, pause=chance.choice([0.01, 0.5]))
        agent.start()
        time.sleep(chance.uniform(4, 8))
        died = collector.lose_pod()
        agent.stop()
    store = open_store(resolve(storage, Upstream(), variables))
    found = stored_ids(store)
    assert set(found) - agent.sent == set(), "never sent"
    lost = [died - moment for name, moment in agent.acknowledged_at.items() if name not in found]
    assert max(lost, default=0) <= 2 + LONGEST_PUT, f"{len(lost)} of {len(agent.acknowledged_at)} lost: {max(lost)} s"


def test_a_full_spool_asks_ray_to_wait_and_recovers_by_itself(
    tmp_path: Path, seaweedfs: SeaweedFS, fault_proxy: FaultProxyFactory
) -> None:
    proxy = fault_proxy(seaweedfs.endpoint)
    variables = s3_variables(seaweedfs)
    proxy.refuse()
    flags = (*NO_RAY, "--event-max-disk-mb=1")
    through_proxy = {**variables, "S3_ENDPOINT": proxy.url}
    with CollectorProcess(tmp_path / "collector", "s3://oracle/full", *flags, env=through_proxy) as collector:
        agent = AgentStandIn(collector.port, pause=0.0, largest=400)
        agent.start()
        until(lambda: 503 in agent.statuses)
        status = collector.get("/v1/status")
        assert status["spool"]["full"]
        assert status["intake"]["refused"]["full"] > 0
        before = len(agent.acknowledged)
        proxy.pass_through()
        until(lambda: len(agent.acknowledged) > before + 1000)
        agent.stop()
        collector.end()
    assert_nothing_lost_nothing_invented(agent, open_store(resolve("s3://oracle/full", Upstream(), variables)))


def test_the_ledger_counts_exactly_across_a_kill(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    (tmp_path / SESSION / "logs").mkdir(parents=True)
    (tmp_path / "session_latest").symlink_to(tmp_path / SESSION)
    flags = ("--enable-log-collector=false", f"--ray-tmp-root={tmp_path}")
    with CollectorProcess(tmp_path / "collector", archive.as_uri(), *flags) as collector:
        agent = AgentStandIn(collector.port)
        agent.start()
        for _ in range(3):
            time.sleep(0.7)
            collector.kill9()
            collector.start()
        agent.stop()
        collector.end()
    store = open_store(resolve(archive.as_uri(), Upstream(), {}))
    (key,) = [found.key for found in store.list("history-ledger")]
    ledger = json.loads(store.get(key))
    events = ledger["events"]
    assert events["stored"] == stored_ids(store).total()
    assert events["received"] == events["stored"] + events["duplicated"]
    assert ledger["ended"] == "graceful"
    assert ledger["role"] == "worker"
