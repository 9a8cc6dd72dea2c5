"""Opening many sessions leaves nothing behind: threads, descriptors and databases are those of the open ones."""

from __future__ import annotations

import gc
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from ray_history.archive import layout
from ray_history.archive.event_files import encode_events
from ray_history.archive.layout import Cluster
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.read.tables import Tables
from ray_history.server.sessions.open_session import OpenSession
from tests.server.serving import served
from tests.support.waiting import until

SESSIONS, MOST_OPEN, TIMES = 6, 3, 10
ROUTES = ("/api/v0/nodes", "/api/v0/tasks?detail=1", "/api/v0/tasks/summarize", "/_session", "/api/jobs/")


class Held(NamedTuple):
    """What this process holds."""

    threads: int
    descriptors: int
    sessions: int
    databases: int

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        objects = [type(each) for each in gc.get_objects()]
        kinds = (len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd"))
        return cls(*kinds, objects.count(OpenSession), objects.count(Tables))

    @classmethod
    def at_rest(cls) -> Held:
        """What it holds once that no longer changes: an index is synced, and a standby made, after the answer."""

        def unchanged() -> Held | None:
            first = cls.now()
            time.sleep(0.2)
            return first if cls.now() == first else None

        return until(unchanged)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = open_store(DirectorySettings(tmp_path / "archive"))
    for number in range(SESSIONS):
        cluster, name, node = Cluster("default", f"c{number}"), "session_2026-01-01_00-00-00_000000_1", "11" * 28
        event = {
            "eventId": "bmV3",
            "eventType": "NODE_DEFINITION_EVENT",
            "timestamp": "2026-01-01T00:00:01Z",
            "sessionName": name,
            "nodeDefinitionEvent": {"nodeId": node, "nodeIpAddress": f"192.0.2.{number}"},
        }
        prefix = layout.session_prefix("", cluster, name)
        made.put(layout.marker_key("", cluster, name), b"")
        made.put(
            layout.event_file_key(prefix, node, None, 1767225601 * 10**9), encode_events([msgspec.json.encode(event)])
        )
    return made


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads and descriptors in /proc")
def test_sixty_openings_leave_what_the_open_sessions_need(store: Store, tmp_path: Path) -> None:
    before = Held.now()
    with served(store, tmp_path / "cache", most_open=MOST_OPEN) as server:

        def open_all() -> None:
            for number in range(SESSIONS):
                answer = server.get(f"/s/default/c{number}/latest{ROUTES[number % len(ROUTES)]}")
                assert answer.status == 200, answer

        open_all()
        base = Held.at_rest()
        assert server.sessions.open_count == MOST_OPEN
        assert base.sessions <= before.sessions + MOST_OPEN
        assert base.databases <= before.databases + MOST_OPEN
        for _ in range(TIMES - 1):
            open_all()
        assert server.sessions.opened_total == SESSIONS * TIMES
        until(lambda: all(now <= then for now, then in zip(Held.now(), base, strict=True)), "what it held before")
