"""The signal to stop in the last lines of a head's logs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ray_history.archive.catalog import read_catalog
from ray_history.archive.log_files import LogFile, LogFiles
from ray_history.archive.session_files import list_session
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.facts import Facts
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from ray_history.index.log_ends import read_end, with_ends
from tests.history.rebuilt import NODE
from tests.server.ui.written_sessions import ran, write_session

GCS = "[2026-11-15 20:58:25,944 I 3 3] (gcs_server) main.cc:266: GCS server received SIGTERM, shutting down..."
RAYLET = "[2026-11-15 20:58:22,122 I 3 3] (raylet) main.cc:1174: received SIGTERM. Existing local drain request = None"
TO_WORKERS = "[2026-11-15 20:58:22,125 I 1 1] (raylet) node_manager.cc:124: Stop: sending SIGTERM to pgid=2494"


def of(node: str, name: str, hour: int) -> LogFile:
    return LogFile(node, name, 9, datetime(2026, 11, 15, hour, tzinfo=UTC), None, ())


def test_the_logs_of_the_last_head_are_read() -> None:
    former = [of("former", name, 1) for name in ("gcs_server.out", "raylet.out")]
    last = [of("last", name, 2) for name in ("gcs_server.out", "raylet.out", "monitor.log")]
    worker = of("worker", "raylet.out", 3)
    chosen = with_ends([*last, worker, *former])
    assert {(log.node, log.name) for log in chosen} == {("last", "gcs_server.out"), ("last", "raylet.out")}
    assert with_ends([worker]) == []


@pytest.mark.parametrize(
    ("text", "shutdown"),
    [(f"one\n{GCS}\ntwo\n", GCS), (RAYLET, RAYLET), (TO_WORKERS, ""), (GCS + "\n" + "x\n" * 40_000, ""), ("", None)],
)
def test_only_the_signal_that_the_process_itself_received_counts(
    tmp_path: Path, text: str, shutdown: str | None
) -> None:
    store = open_store(DirectorySettings(tmp_path))
    store.put("log", text.encode())
    logs = LogFiles(store, [("n", "raylet.out", next(iter(store.list(""))))], [])
    end = read_end(logs, logs.find("n", "raylet.out"))
    assert (end["shutdown"] if end else None) == shutdown
    store.delete_many(["log"])
    assert read_end(logs, logs.find("n", "raylet.out")) is None


def test_jobs_that_finished_before_the_head_died_are_found(tmp_path: Path) -> None:
    def line(second: int, text: str) -> str:
        return f"[2026-11-15 20:58:{second},344 I 3 3] (gcs_server) gcs_job_manager.cc:156: {text}\n"

    store = open_store(DirectorySettings(tmp_path))
    text = line(10, "Marking job as finished. job_id=01000000") + line(11, "Something else")
    text += line(12, "Node is dead, marking all jobs with drivers on this node as finished. node_id=ab")
    text += "".join(line(12, f"Marking job as finished. job_id=0{number}000000") for number in (2, 3))
    text += line(13, "Something else") + line(14, "Marking job as finished. job_id=04000000") + "(no time)\n"
    store.put("log", text.encode())
    logs = LogFiles(store, [("n", "gcs_server.out", next(iter(store.list(""))))], [])
    assert read_end(logs, logs.find("n", "gcs_server.out")) == {
        "shutdown": "",
        "last": "2026-11-15 20:58:14,344",
        "finished_jobs": [
            {"job_id": "01000000", "time": "2026-11-15 20:58:10,344"},
            {"job_id": "04000000", "time": "2026-11-15 20:58:14,344"},
        ],
    }


def facts(store: Store, cache: Path) -> Facts:
    (session,) = read_catalog(store).sessions
    with Indexer(store, Cache(cache, 1 << 30)).open(session) as opened:
        return opened.manifest.facts


def test_a_log_that_grew_to_its_end_renews_the_index(tmp_path: Path) -> None:
    store = write_session(tmp_path, ran(1, "f", 1, 2))
    assert facts(store, tmp_path / "cache").shutdown is None, "there are no logs of a head"
    logs = {(NODE, "gcs_server.out"): b"one\n", (NODE, "raylet.out"): f"{RAYLET}\n".encode()}
    store = write_session(tmp_path, ran(1, "f", 1, 2), logs={(NODE, "gcs_server.out"): b"one\n"})
    assert facts(store, tmp_path / "cache").shutdown == ""
    store = write_session(tmp_path, ran(1, "f", 1, 2), logs=logs)
    assert facts(store, tmp_path / "cache").shutdown == f"raylet.out: {RAYLET}"
    (session,) = read_catalog(store).sessions
    whole = next(info for _, name, info in list_session(store, session).whole_logs if name == "gcs_server.out")
    store.put(whole.key, f"one\n{GCS}\n".encode())
    assert facts(store, tmp_path / "cache").shutdown == f"gcs_server.out: {GCS}", "the GCS stops last"
