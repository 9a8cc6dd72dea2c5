"""When waiting events become event files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_history.archive.stores import open_store
from ray_history.archive.stores.memory import MemorySettings
from ray_history.collector.collector import Collector
from ray_history.collector.polling.dashboard_client import Dashboard
from ray_history.collector.settings import resolve
from tests.collector.collector_process import event

SESSION = "session_2026-01-11_19-38-40_146706_1"
FEW, MANY = b"[" + b" " * 1000 + b"]", b"[" + b" " * 600_000 + b"]"


def collector(folder: Path, **flags: str) -> Collector:
    (folder / "ray" / SESSION / "logs").mkdir(parents=True)
    (folder / "ray" / "session_latest").symlink_to(SESSION)
    settings = resolve({"cluster": "c", "event_data_dir": str(folder), "ray_tmp_root": f"{folder}/ray", **flags}, {})
    store = open_store(MemorySettings(folder.name))
    return Collector(settings, store, Dashboard(settings.dashboard, lambda: None), lambda: None)


@pytest.mark.parametrize(
    ("flags", "waiting", "interval"),
    [
        ({}, FEW, 60),
        ({}, MANY, 10),
        ({"push_interval": "2s"}, FEW, 12),
        ({"event_journal_interval": "0s"}, FEW, 10),
        ({"event_rotation_interval": "30s"}, FEW, 30),
        ({"event_rotation_interval": "30s"}, MANY, 30),
    ],
)
def test_few_events_wait_for_more_while_journals_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: dict[str, str], waiting: bytes, interval: float
) -> None:
    one = collector(tmp_path, **flags)
    one._spool.append([json.dumps([event("first", SESSION)]).encode()])
    due_after(monkeypatch, one, one._settings.events_interval)  # the first events do not wait: they are counted soon
    one._spool.seal()
    assert one._events.ship_all() == 1
    one._spool.append([waiting])
    due_after(monkeypatch, one, interval)


def due_after(monkeypatch: pytest.MonkeyPatch, one: Collector, seconds: float) -> None:
    for age in (seconds - 0.1, seconds):
        monkeypatch.setattr(one, "_oldest_age", lambda age=age: age)
        assert one._is_event_file_due() == (age == seconds)
