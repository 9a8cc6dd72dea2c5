"""A head that sends no events is reported once, and only while Ray runs."""

from __future__ import annotations

import logging
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ray_history.collector.ingest.silence import SilenceWatch
from ray_history.collector.ledger import LedgerBook
from ray_history.collector.node.identity import RayNode

SESSIONS = ("session_2026-11-15_20-00-55_739110_1", "session_2026-11-15_21-00-55_739110_2")


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rs", dir="/tmp") as folder:  # short, as sockets need it
        yield Path(folder)


def begin(root: Path, session: str) -> socket.socket:
    """A session with a raylet that accepts connections."""
    (root / session / "sockets").mkdir(parents=True)
    link = root / "session_latest"
    link.unlink(missing_ok=True)
    link.symlink_to(root / session)
    raylet = socket.socket(socket.AF_UNIX)
    raylet.bind(str(root / session / "sockets" / "raylet"))
    raylet.listen()
    return raylet


def watch(root: Path, ingest: Any) -> tuple[SilenceWatch, LedgerBook]:
    book = LedgerBook(root / "ledger.json")
    return SilenceWatch(RayNode(root, head=True), ingest, book, 9), book


def test_a_minute_without_events_is_reported_once_per_session(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ingest = SimpleNamespace(last_post=0.0)
    silence, book = watch(root, ingest)
    silence.check(50.0)  # without any session
    with begin(root, SESSIONS[0]):
        for now in (100.0, 159.0):
            silence.check(now)
        assert book.session(SESSIONS[0]).silent is None
        for now in (160.0, 161.0, 300.0):
            silence.check(now)
        assert book.session(SESSIONS[0]).silent is not None
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "EXPORT_ADDR=http://127.0.0.1:9/v1/events" in caplog.text
        ingest.last_post = 301.0
        silence.check(302.0)
        assert book.session(SESSIONS[0]).silent is None
    with begin(root, SESSIONS[1]):
        silence.check(400.0)
        silence.check(460.0)
        assert book.session(SESSIONS[1]).silent is not None


def test_a_session_with_events_or_without_a_raylet_is_not_reported(root: Path) -> None:
    silence, book = watch(root, SimpleNamespace(last_post=0.0))
    with begin(root, SESSIONS[0]):
        silence.check(100.0)
    silence.check(200.0)  # the raylet has ended
    assert book.session(SESSIONS[0]).silent is None
    with begin(root, SESSIONS[1]):
        silence.check(300.0)
        book.session(SESSIONS[1]).events.received = 1  # by an earlier process
        silence.check(400.0)
    assert book.session(SESSIONS[1]).silent is None
