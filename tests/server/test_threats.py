"""What others cannot do, beyond what the tests of the single parts show; see docs/security.md for the whole."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import duckdb
import msgspec
import pytest

from ray_history.archive import layout
from ray_history.archive.catalog import Session, read_catalog
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from ray_history.index.manifest import describe_file
from tests.collector.collector_process import AgentStandIn, CollectorProcess
from tests.server.serving import Served, served
from tests.support.captured import captured, write_archive
from tests.support.waiting import until

S = f"/s/default/demo/{captured().session}"
NODE = min(captured().events)
SCRIPT = b"<html><script>alert(document.cookie)</script></html>"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = open_store(DirectorySettings(tmp_path / "archive"))
    for name in ("demo", "forged"):
        write_archive(made, Generation.C, Cluster("default", name))
    return made


@pytest.fixture
def server(store: Store, tmp_path: Path) -> Iterator[Served]:
    (session,) = read_catalog(store).find("default", "demo", None).sessions
    prefix = layout.session_prefix(session.root, session.cluster, session.name)
    for name in ("page.html", "picture.svg"):
        store.put(layout.log_key(prefix, NODE, name), SCRIPT)
    with served(store, tmp_path / "cache") as running:
        yield running


def test_pages_of_other_sites_can_neither_read_nor_frame(server: Served) -> None:
    elsewhere = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    asks = {**elsewhere, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    paths = (
        "/",
        "/clusters",
        "/metrics",
        "/login",
        f"{S}/",
        f"{S}/_session",
        f"{S}/api/v0/nodes",
        f"{S}/logs/",
        "/none",
    )
    for path in paths:
        for method, headers in (("GET", elsewhere), ("OPTIONS", asks), ("GET", {**elsewhere, "Accept": "text/html"})):
            answer = server.get(path, headers, method)
            assert not [name for name in answer.headers if name.startswith("access-control-")], (method, path)
            assert answer.headers["x-frame-options"] in ("SAMEORIGIN", "DENY"), (method, path)
            assert answer.headers["referrer-policy"] == "same-origin", (method, path)


@pytest.mark.parametrize("name", ["page.html", "picture.svg"])
def test_a_log_file_never_becomes_a_page(server: Served, name: str) -> None:
    for path in (f"{S}/logs/{name}?node_id={NODE}", f"{S}/api/v0/logs/file?node_id={NODE}&filename={name}"):
        answer = server.get(path, {"Accept": "text/html"})
        assert (answer.status, answer.body) == (200, SCRIPT), path
        assert answer.headers["content-type"].startswith("text/plain"), path
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert answer.headers["content-security-policy"].startswith("default-src 'none'"), path


def forge_index(store: Store, session: Session, folder: Path) -> None:
    """Store a table of nothing as the tasks of a session, with a manifest that agrees with it."""
    with Indexer(store, Cache(folder / "theirs", 1 << 30)).open(session):
        pass  # an index to begin with
    prefix = layout.index_prefix(session.root, session.cluster, session.name)
    duckdb.sql("select 'x' as task_id").write_parquet(str(folder / "observed_tasks.parquet"))
    manifest = msgspec.json.decode(store.get(f"{prefix}/manifest.json"))
    for file in manifest["files"]:
        if file["name"].endswith("tasks.parquet"):
            forged = describe_file(folder / "observed_tasks.parquet")
            file["size"], file["digest"] = forged.size, forged.digest
            key = f"{prefix}/{file['name'].removesuffix('.parquet')}-{forged.digest[:16]}.parquet"
            store.put(key, (folder / "observed_tasks.parquet").read_bytes())
    store.put(f"{prefix}/manifest.json", msgspec.json.encode(manifest))


def test_a_forged_index_costs_only_its_session(store: Store, tmp_path: Path) -> None:
    (session,) = read_catalog(store).find("default", "forged", None).sessions
    forge_index(store, session, tmp_path)
    with served(store, tmp_path / "cache") as server:
        for _ in range(2):
            assert server.get("/s/default/forged/latest/api/v0/tasks").status == 500
            assert server.get(f"{S}/api/v0/tasks").status == 200
            assert server.get("/", {"Accept": "text/html"}).status == 200


def test_the_archive_holds_no_credentials(tmp_path: Path) -> None:
    """Whoever may read the bucket learns what happened in the clusters, and nothing that opens other doors."""
    secret = "the-secret-key-of-the-collector"
    variables = dict.fromkeys(("AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_CONNECTION_STRING", "RAY_AUTH_TOKEN"), secret)
    archive = tmp_path / "archive"
    with CollectorProcess(tmp_path / "collector", archive.as_uri(), env=variables) as collector:
        agent = AgentStandIn(collector.port)
        agent.start()
        until(lambda: agent.acknowledged)
        agent.stop()
        collector.end()
        log = (tmp_path / "collector" / "collector.log").read_text()
    stored = [path for path in archive.rglob("*") if path.is_file()]
    assert [path for path in stored if path.name.endswith(".jsonl.gz")]
    for path in stored:
        body = path.read_bytes()
        assert secret.encode() not in (gzip.decompress(body) if path.suffix == ".gz" else body), path
    assert secret not in log
