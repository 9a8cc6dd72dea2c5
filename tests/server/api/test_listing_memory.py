"""Listings whose rows do not fit into memory together are made in smaller pages, or refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive import layout
from ray_history.archive.event_files import encode_events
from ray_history.archive.layout import Cluster
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.api import listing
from tests.history.rebuilt import NODE, lifecycle, task_id
from tests.server.serving import served

TASKS, MESSAGE = 40, 512 << 10
"""Ray cuts the message of an error at this length."""
LISTING = "/s/team/trainer/latest/api/v0/tasks?detail=1&limit=10000"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A session whose tasks all failed with long messages."""
    made = open_store(DirectorySettings(tmp_path / "archive"))
    cluster, name = Cluster("team", "trainer"), "session_2026-11-15_20-55-36_563127_31460"
    made.put(layout.marker_key("", cluster, name), b"")
    prefix = layout.session_prefix("", cluster, name)
    events = (
        lifecycle(task_id(number), ("RUNNING", 1), ("FAILED", 2), error=("WORKER_DIED", f"{number} " * (MESSAGE // 3)))
        for number in range(TASKS)
    )
    made.put(layout.event_file_key(prefix, NODE, None, 10**18), encode_events(json.dumps(e).encode() for e in events))
    return made


def test_long_messages_are_listed_in_small_pages(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages, make = list[int](), listing._pages

    def recorded(*arguments: Any) -> Generator[listing.Rows]:
        for rows in make(*arguments):
            pages.append(len(rows))
            yield rows

    monkeypatch.setattr(listing, "_pages", recorded)
    with served(store, tmp_path / "cache", query_memory=128 << 20) as server:
        answer = server.get(LISTING)
        assert (answer.status, len(answer.rows)) == (200, TASKS)
        assert sorted(row["task_id"] for row in answer.rows) == sorted(map(task_id, range(TASKS)))
        assert sum(pages) == TASKS
        assert max(pages) < TASKS
        some = server.get(LISTING + "&sort=task_id&order=desc&offset=5")
        assert [row["task_id"] for row in some.rows] == sorted(map(task_id, range(TASKS)), reverse=True)[5:]


def test_what_does_not_fit_at_all_is_refused_with_the_reason(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache", query_memory=12 << 20) as server:
        answer = server.get(LISTING)
        assert (answer.status, "--query-memory" in answer.json["msg"]) == (503, True)
        assert server.get(LISTING.replace("tasks", "nodes")).status == 200
