"""Two thousand sessions are all found, by paging and by searching."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.server.serving import served
from tests.server.ui.fleets import write_fleet

from .test_page import home, names, rows

SESSIONS = 2000


def test_a_fleet_of_two_thousand_sessions(tmp_path: Path) -> None:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    made = write_fleet(store, SESSIONS, time.time())
    with served(store, tmp_path / "cache") as server:
        page = home(server)
        assert page.one("p", "dim").text.startswith(f"{SESSIONS:,} sessions, 4 live")
        assert len(rows(page)) == 50
        shown: Counter[str] = Counter()
        query = "?sort=duration"
        while query:
            page = home(server, query)
            shown.update(names(page))
            query = next(
                (a.attributes["href"] for a in page.all("a") if a.attributes.get("rel") == "next"),
                "",
            )
        assert shown == {one.cluster.name: 1 for one in made}
        for one in made[:: SESSIONS // 10]:
            assert names(home(server, f"?q={one.submission_id}")) == [one.cluster.name]
        lost = {one.cluster.name for one in made if one.state == "lost"}
        assert set(names(home(server, "?state=lost&complete=0"))) == lost
        newest = server.get("/clusters")
        assert len(newest.json) == 100
        assert f"the newest 100 of {SESSIONS} stored sessions" in newest.headers["x-ray-history-note"]
        whole = server.get(f"/clusters?limit={SESSIONS}")
        assert len(whole.json) == SESSIONS
        assert "x-ray-history-note" not in whole.headers
        failing = sum(bool(one.failed) for one in made)
        assert home(server, "?failed=1").one("p", "dim").text == f"{failing} of {SESSIONS:,} sessions match"
