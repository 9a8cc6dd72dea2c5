"""What a collector still stores after SIGTERM, when its store is too slow for all of it."""

from __future__ import annotations

import http.client
import json
import os
import random
from pathlib import Path

from ray_history.archive.catalog import read_catalog
from ray_history.archive.ledger import Ledger, decode
from ray_history.archive.session_files import events_of, list_session
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store
from tests.conftest import s3_variables
from tests.support.fixtures import FaultProxyFactory
from tests.support.seaweedfs import SeaweedFS
from tests.support.waiting import until

from .collector_process import SESSION, CollectorProcess, event

NODE = "ab" * 28
BATCHES = 12
SLOW = 300_000
"""Bytes per second."""


def post_a_backlog(port: int) -> set[str]:
    """A megabyte per batch that hardly compresses; returns the ids of the acknowledged events."""
    names = set()
    for number in range(BATCHES):
        batch = [event(f"{number}-{n}") | {"message": random.randbytes(20_000).hex()} for n in range(25)]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/v1/events", json.dumps(batch), {"Content-Type": "application/json"})
        assert connection.getresponse().status == 200
        connection.close()
        names |= {each["eventId"] for each in batch}
    return names


class Archive:
    """What reached the store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        (entry,) = read_catalog(store).sessions
        self.files = list_session(store, entry)

    def ledger(self) -> Ledger:
        (key,) = [found.key for found in self.store.list("history-ledger")]
        ledger = decode(self.store.get(key))
        assert ledger is not None
        return ledger

    def events(self) -> set[str]:
        return {json.loads(raw)["eventId"] for raw in events_of(self.store, self.files, [])}

    def log(self, name: str) -> bytes:
        logs = self.files.logs(self.store)
        (found,) = [file for file in logs.list(NODE) if file.name == name]
        return b"".join(logs.open(found).stream())


def make_session(root: Path) -> Path:
    logs = root / SESSION / "logs"
    logs.mkdir(parents=True)
    (root / "session_latest").symlink_to(SESSION)
    (logs / "worker.out").write_text("the first line\n")
    return logs


def test_a_slow_store_gets_the_last_lines_and_the_ledger_names_what_it_does_not_get(
    tmp_path: Path, seaweedfs: SeaweedFS, fault_proxy: FaultProxyFactory
) -> None:
    proxy, variables = fault_proxy(seaweedfs.endpoint), s3_variables(seaweedfs)
    logs = make_session(tmp_path / "ray")
    flags = (f"--ray-tmp-root={tmp_path / 'ray'}", f"--node-id={NODE}", "--event-journal-interval=0s")
    env = {**variables, "S3_ENDPOINT": proxy.url}
    storage = "s3://grace/slow"
    with CollectorProcess(tmp_path / "one", storage, *flags, "--shutdown-grace=8s", env=env) as collector:
        until(lambda: collector.get("/v1/status")["sessions"].get(SESSION, {}).get("logs", {}).get("bytes_stored"))
        proxy.refuse()
        sent = post_a_backlog(collector.port)
        (logs / "huge.log").touch()
        os.truncate(logs / "huge.log", 100 << 30)
        proxy.slow(SLOW, together=True)
        until(lambda: proxy.faults_hit > 5, "both loops upload")
        with (logs / "worker.out").open("a") as file:
            file.write("the last line\n")
        collector.end()
        archive = Archive(open_store(resolve(storage, Upstream(), variables)))
        assert archive.log("worker.out") == b"the first line\nthe last line\n"
        ledger = archive.ledger()
        assert ledger.ended is None
        missing = sent - archive.events()
        assert ledger.events.unsent_batches * 25 == len(missing) > 0
        spool = tmp_path / "one" / "data" / "spool"
        assert set(ledger.events.unsent_segments) <= {path.name for path in spool.glob("*.spool")}
        assert ledger.events.unsent_segments
        stored = (100 << 30) - ledger.logs.unsent["huge.log"]
        assert 0 <= stored < 100 << 30
        assert ledger.logs.bytes_unsent == sum(ledger.logs.unsent.values())
        assert "worker.out" not in ledger.logs.unsent

        (logs / "huge.log").unlink()
        proxy.pass_through()
        collector.start()
        until(lambda: not collector.get("/v1/status")["spool"]["lag_seconds"])
        collector.end()
    archive = Archive(open_store(resolve(storage, Upstream(), variables)))
    assert archive.events() == sent, "the volume had the rest"
    ledger = archive.ledger()
    assert (ledger.events.unsent_batches, ledger.events.unsent_segments, ledger.logs.bytes_unsent) == (0, [], 0)
