"""The word for the end of a session follows from the logs of its head and from the ledgers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ray_history.archive import layout
from tests.history.rebuilt import NODE
from tests.server.serving import Served, served
from tests.server.ui.markup import Element, parsed
from tests.server.ui.written_sessions import SESSION, ran, write_session
from tests.support.waiting import until

BROWSER = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}
STOPPED = b"[2026-11-15 20:58:25,944 I 3 3] (gcs_server) main.cc:266: GCS server received SIGTERM, shutting down...\n"
RAYLET = b"[2026-11-15 20:58:22,122 I 3 3] (raylet) main.cc:1174: received SIGTERM. Existing local drain = None\n"
TO_WORKERS = b"[2026-11-15 20:58:22,125 I 1 1] (raylet) node_manager.cc:124: Stop: sending SIGTERM to pgid=2494\n"
ANSWERED = {"newest": "answered", "since": {"answered": 1.0}}
GONE = {"newest": "unreachable", "since": {"answered": 1.0, "unreachable": 2.0}}


def row_of(server: Served) -> Element | None:
    """The row of the session, once the list has everything that was stored before."""
    page = parsed(server.get("/", BROWSER).body)
    if page.one("main").attributes.get("data-again") == "1":
        return None
    return next(row for row in page.all("tr") if row.all("td", "c-name"))


def ran_by(exit_code: int | None, signal: str = "", stopped_by: str = "") -> dict[str, Any]:
    """The ledger of a head that `ray-history run` recorded, whose dashboard was gone at the end."""
    end = {"ended": 1.1e9, "exit_code": exit_code, "signal": signal, "stopped_by": stopped_by}
    return head("graceful", version=GONE) | {"command": {"arguments": ["python", "train.py"], "pid": 3} | end}


def head(ended: str | None, **polled: Any) -> dict[str, Any]:
    return {"role": "head", "ended": ended, "started": 1e9, "alive_until": 1e9 + 1, "polled": polled}


@pytest.mark.parametrize(
    ("word", "ledger", "gcs", "raylet"),
    [
        ("stopped", head("graceful", version=GONE), b"one\n" + STOPPED, b""),
        ("stopped", head("graceful", version=GONE), b"one\n", RAYLET),
        ("killed", head("graceful", version=GONE), b"one\n", TO_WORKERS),
        ("ended", head("graceful", version=ANSWERED), b"one\n", TO_WORKERS),
        ("ended", head("graceful", version=GONE), b"", b""),
        ("lost contact", head(None, version=GONE), b"one\n", b""),
        ("ended", ran_by(0), STOPPED, RAYLET),
        ("failed", ran_by(1), STOPPED, RAYLET),
        ("failed", ran_by(None, "SIGSEGV"), b"one\n", b""),
        ("killed", ran_by(None, "SIGKILL"), b"one\n", b""),
        ("stopped", ran_by(1, stopped_by="SIGINT"), b"one\n", b""),
        ("stopped", None, STOPPED, b""),
        ("ended", None, b"one\n", b""),
    ],
)
def test_the_badge_names_the_end_with_its_evidence(
    tmp_path: Path, word: str, ledger: dict[str, Any] | None, gcs: bytes, raylet: bytes
) -> None:
    logs = {(NODE, name): body for name, body in (("gcs_server.out", gcs), ("raylet.out", raylet)) if body}
    store = write_session(tmp_path, ran(1, "f", 1, 2), logs=logs, ledgers={NODE: ledger} if ledger else {})
    session = f"/s/default/written/{SESSION}"
    with served(store, tmp_path / "cache") as server:
        end = server.get(f"{session}/_completeness").json["end"]
        assert end["word"] == word
        if ledger and "command" in ledger:
            assert end["evidence"].startswith("python train.py ")
        elif word == "stopped":
            assert "received SIGTERM" in end["evidence"]
        pill = parsed(server.get(f"{session}/_session", BROWSER).body).all("span", "pill")[0]
        assert pill.text.lower().startswith(word)
        assert pill.attributes["title"] == end["evidence"]
        until(lambda: list(store.list(layout.SUMMARIES)))
        row = until(lambda: row_of(server))
        dot = row.one("span", "dot").attributes
        assert dot["aria-label"] == word, "the same word in the list"
        assert dot["title"] == f"{word.capitalize()}: {end['evidence']}"
        assert (word in row.one("td", "c-dur").text) == (word in ("failed", "stopped", "killed"))
        bar = parsed(server.get(f"{session}/", BROWSER).body).all("span", "hb-pill")[0]
        assert word in bar.text
        assert bar.attributes["title"].startswith(end["evidence"])
