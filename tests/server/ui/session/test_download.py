"""The download: what is in it, what redaction leaves out, and that it needs little memory."""

from __future__ import annotations

import http.client
import io
import threading
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.app import AppConfig
from ray_history.server.redaction.log_lines import without_secrets
from ray_history.server.ui.session import download
from tests.history.rebuilt import NODE, job, job_life, task, task_id
from tests.server.serving import Served, served
from tests.server.ui.written_sessions import SESSION, end_long_ago, failed, ran, write_session
from tests.support.captured import captured, write_archive
from tests.support.waiting import until

S = f"/s/default/demo/{captured().session}"
SECRET = "hunter2-never-shown"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Path]:
    folder = tmp_path_factory.mktemp("download")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    end_long_ago(folder)
    return store, folder / "cache"


@pytest.fixture(scope="module")
def server(archive: tuple[Store, Path]) -> Iterator[Served]:
    with served(*archive) as running:
        yield running


def unzipped(server: Served, path: str) -> zipfile.ZipFile:
    answer = server.get(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/zip"
    archive = zipfile.ZipFile(io.BytesIO(answer.body))
    assert archive.testzip() is None
    return archive


def rows(archive: zipfile.ZipFile, table: str, folder: Path) -> list[dict[str, Any]]:
    file = folder / "table.parquet"
    file.write_bytes(archive.read(f"tables/{table}.parquet"))
    found = duckdb.sql(f"select to_json(t)::varchar from '{file}' as t").fetchall()
    return [msgspec.json.decode(text) for (text,) in found]


def test_the_zip_contains_the_tables_that_the_api_lists(server: Served, tmp_path: Path) -> None:
    archive = unzipped(server, f"{S}/_download")
    for table, key in (("tasks", "task_id"), ("actors", "actor_id"), ("nodes", "node_id"), ("workers", "worker_id")):
        listed = server.get(f"{S}/api/v0/{table}?limit=10000&raw=1&exclude_driver=false").rows
        assert sorted(row[key] for row in rows(archive, table, tmp_path)) == sorted(row[key] for row in listed)


def test_the_zip_contains_every_log_as_the_log_api_serves_it(server: Served) -> None:
    archive = unzipped(server, f"{S}/_download")
    logs = {name.removeprefix("logs/"): name for name in archive.namelist() if name.startswith("logs/")}
    assert len(logs) == len(captured().logs)
    for (node, name), body in captured().logs.items():
        assert archive.read(logs[f"{node}/{name}"]) == b"".join(without_secrets(name, iter([body])))


def test_completeness_is_that_of_the_api(server: Served) -> None:
    report = msgspec.json.decode(unzipped(server, f"{S}/_download").read("completeness.json"))
    assert report == server.get(f"{S}/_completeness").json


def test_the_last_file_confirms_completeness(server: Served) -> None:
    archive = unzipped(server, f"{S}/_download")
    assert archive.namelist()[-1] == "COMPLETE.txt"
    assert archive.read("COMPLETE.txt").startswith(b"Everything")


def test_the_download_has_a_file_name(server: Served) -> None:
    answer = server.get(f"{S}/_download", method="HEAD")
    assert answer.status == 200
    assert answer.body == b""
    assert answer.headers["content-disposition"] == f'attachment; filename="default-demo-{captured().session}.zip"'


def secretive(folder: Path) -> Store:
    env = f'{{"env_vars": {{"TOKEN": "{SECRET}"}}}}'
    return write_session(
        folder,
        [
            task(task_id(1), serializedRuntimeEnv=env),
            *failed(3, "broken", 1, 2, f"KeyError: DB_PASSWORD={SECRET}"),
            *ran(2, "fine", 1, 2),
            job(entrypoint=f"DB_PASSWORD={SECRET} python x.py", config={"serializedRuntimeEnv": env, "metadata": {}}),
            job_life("CREATED", 0),
        ],
        endpoints={"restful__api__custom": {"api_key": SECRET}},
    )


def everything(archive: zipfile.ZipFile, folder: Path) -> str:
    tables = [name[7:-8] for name in archive.namelist() if name.endswith(".parquet")]
    others = [archive.read(name).decode("latin-1") for name in archive.namelist() if not name.endswith(".parquet")]
    return "\n".join([*others, *(str(rows(archive, table, folder)) for table in tables)])


def test_secrets_are_redacted_and_the_readme_lists_what_is_left_out(tmp_path: Path) -> None:
    with served(secretive(tmp_path), tmp_path / "cache") as server:
        archive = unzipped(server, f"/s/default/written/{SESSION}/_download")
    names = archive.namelist()
    assert not [name for name in names if name.startswith(("events/", "endpoints/"))]
    assert not {"tables/rare_events.parquet", "tables/documents.parquet"} & set(names)
    assert SECRET not in everything(archive, tmp_path)
    (task_row,) = [row for row in rows(archive, "tasks", tmp_path) if row["task_id"] == task_id(1)]
    assert task_row["runtime_env"] == '{"env_vars":{"TOKEN":"<redacted>"}}'
    assert [row["entrypoint"] for row in rows(archive, "jobs", tmp_path)] == ["DB_PASSWORD=<redacted> python x.py"]
    assert b"Secrets are redacted on this server" in archive.read("README.txt")


def test_without_redaction_events_and_snapshots_are_included(tmp_path: Path) -> None:
    with served(secretive(tmp_path), tmp_path / "cache", AppConfig(redact=False)) as server:
        archive = unzipped(server, f"/s/default/written/{SESSION}/_download")
    names = archive.namelist()
    assert [name for name in names if name.startswith("events/")]
    assert msgspec.json.decode(archive.read("endpoints/restful__api__custom.json")) == {"api_key": SECRET}
    assert {"tables/rare_events.parquet", "tables/documents.parquet"} <= set(names)
    assert rows(archive, "rare_events", tmp_path)
    assert b"This server shows secrets" in archive.read("README.txt")


def test_names_in_the_zip_stay_below_its_folder_and_are_unique() -> None:
    taken: set[str] = set()
    names = ["logs/../../etc/passwd", "logs//etc/passwd", "/abs", "a/./b", "a/b", "A/B", "C:\\x", "..", "x\n\0y"]
    made = [download._unique(name, taken) for name in names]
    assert made == [
        "logs/etc/passwd", "logs/etc/2-passwd", "abs", "a/b", "a/2-b", "A/3-B", "C__x", "_", "x__y",
    ]  # fmt: skip


LARGE = 160 << 20


def test_a_large_log_is_streamed(tmp_path: Path) -> None:
    store = write_session(tmp_path, ran(1, "fine", 0, 5), logs={(NODE, "large.log"): b""})
    (file,) = (tmp_path / "archive").rglob("large.log")
    with file.open("r+b") as out:
        out.truncate(LARGE)
    end_long_ago(tmp_path)
    with served(store, tmp_path / "cache") as server:
        server.get(f"/s/default/written/{SESSION}/api/version")
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        tracemalloc.start()
        try:
            connection.request("GET", f"/s/default/written/{SESSION}/_download")
            response = connection.getresponse()
            with (tmp_path / "all.zip").open("wb") as out:
                while piece := response.read(1 << 16):
                    out.write(piece)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            connection.close()
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        assert archive.getinfo(f"logs/{NODE}/large.log").file_size == LARGE
    assert peak < LARGE / 3


class Waiting:
    """A stand-in for a slow store: it sends `slow.log` once `go_on` is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.requested, self.go_on = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def stream(self, key: str, start: int = 0) -> Iterator[bytes]:
        for piece in self._store.stream(key, start):
            if key.endswith("slow.log"):
                self.requested.set()
                self.go_on.wait(60)
            yield piece


def test_a_disconnecting_client_stops_the_work_and_frees_its_place(tmp_path: Path) -> None:
    written = write_session(tmp_path, ran(1, "fine", 0, 5), logs={(NODE, "slow.log"): b""})
    (file,) = (tmp_path / "archive").rglob("slow.log")
    with file.open("r+b") as out:
        out.truncate(64 << 20)
    end_long_ago(tmp_path)
    store = Waiting(written)
    with served(store, tmp_path / "cache") as server:  # type: ignore[arg-type]
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", f"/s/default/written/{SESSION}/_download")
        connection.getresponse().read(1)
        assert store.requested.wait(60)
        assert download._running._value == download.MOST_AT_ONCE - 1  # type: ignore[attr-defined]
        connection.sock.close()
        connection.close()
        store.go_on.set()
        until(lambda: download._running._value == download.MOST_AT_ONCE)  # type: ignore[attr-defined]
        assert server.get(f"/s/default/written/{SESSION}/_download").status == 200


def test_too_many_downloads_are_refused_with_a_reason(server: Served) -> None:
    for _ in range(download.MOST_AT_ONCE):
        assert download._running.acquire(blocking=False)
    try:
        answer = server.get(f"{S}/_download")
    finally:
        for _ in range(download.MOST_AT_ONCE):
            download._running.release()
    assert answer.status == 503
    assert "try again" in answer.json["msg"]
