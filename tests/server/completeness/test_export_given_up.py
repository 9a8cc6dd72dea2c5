"""A head whose GCS stopped exporting events: every surface says what is missing."""

from __future__ import annotations

from pathlib import Path

from ray_history.archive.catalog import read_catalog
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from ray_history.server.sessions.overview import SessionOverview
from ray_history.server.ui.home.rows import make_row
from tests.history.rebuilt import NODE
from tests.server.serving import served
from tests.server.ui.written_sessions import SESSION, ran, write_session

LEDGER = {
    "role": "head",
    "ended": "graceful",
    "alive_until": 1_794_787_300.0,
    "events": {"received": 2, "stored": 2},
    "export_given_up": 1_794_787_210.0,
}
REASON = "Ray's GCS gave up exporting events"


def test_every_surface_says_that_the_gcs_stopped_exporting(tmp_path: Path) -> None:
    store = write_session(tmp_path, ran(1, "fine", 0, 5), ledgers={NODE: LEDGER})
    address = f"/s/default/written/{SESSION}"
    with served(store, tmp_path / "cache") as server:
        completeness = server.get(f"{address}/_completeness").json["completeness"]
        assert completeness["state"] == "incomplete"
        assert any(REASON in reason for reason in completeness["reasons"])
        assert REASON in server.get(f"{address}/api/v0/actors").json["data"]["result"]["partial_failure_warning"]
        unknown = server.get(f"{address}/_completeness").json["unknown"]
        assert "not exported by Ray" in unknown["nodes"]
        assert "has to name" not in unknown["nodes"], "no setting would help"
        page = server.get(f"{address}/_session").body.decode().replace("&#39;", "'")
        assert REASON in page
        assert "<dt>CPU / GPU</dt><dd>unknown</dd>" in page


def test_a_row_of_the_list_says_so_without_the_ledgers(tmp_path: Path) -> None:
    store = write_session(tmp_path, ran(1, "fine", 0, 5), ledgers={NODE: LEDGER})
    indexer = Indexer(store, Cache(tmp_path / "cache", 1 << 30))
    (session,) = read_catalog(store).sessions
    with indexer.open(session):
        pass
    indexer.summarize(session)
    row = make_row(session, SessionOverview(indexer.summaries.read(session)), "ended", redact=True)
    assert (row.completeness.short, row.is_incomplete) == ("GCS exported no events", True)
