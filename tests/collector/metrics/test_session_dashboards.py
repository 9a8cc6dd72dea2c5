"""The dashboards that the head writes are stored when they are complete, once, and again if they change."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_history.archive import layout
from ray_history.archive.errors import NotFound
from ray_history.archive.layout import Cluster
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.collector.destination import Destination
from ray_history.collector.metrics.dashboards import SessionDashboards
from ray_history.collector.node.identity import RayNode
from ray_history.metrics.dashboards import unpack

SESSION = "session_2026-11-15_20-00-00_000000_1"
KEY = layout.metric_dashboards_key("", Cluster("default", "demo"), SESSION)


class Head:
    """A head's session directory, and an archive."""

    def __init__(self, folder: Path) -> None:
        self.store: Store = open_store(DirectorySettings(folder / "archive"))
        self.store.check(create=True)
        self.session = folder / SESSION
        self.place = self.session / "metrics" / "grafana" / "dashboards"
        self.place.mkdir(parents=True)
        self.elsewhere = folder / "elsewhere"

    def dashboards(self, environ: dict[str, str] | None = None, *, is_head: bool = True) -> SessionDashboards:
        node = RayNode(self.session.parent, head=is_head, session_dir=self.session)
        return SessionDashboards(
            Destination(self.store, Cluster("default", "demo")), node, environ or {}, is_head=is_head
        )

    def write(self, name: str, text: str, place: Path | None = None) -> None:
        place = place or self.place
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{name}_grafana_dashboard.json").write_text(text)

    def stored(self) -> dict[str, str]:
        try:
            return {each.name: each.uid for each in unpack(self.store.get(KEY))}
        except NotFound:
            return {}


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path)


def test_dashboards_are_stored_when_all_of_them_are_whole(head: Head) -> None:
    dashboards = head.dashboards()
    head.write("default", '{"uid": "a"}')
    head.write("serve", "")  # Ray has just opened the second file
    for _ in range(3):
        dashboards.tick()
    assert head.stored() == {}
    head.write("serve", '{"uid": "b"}')
    dashboards.tick()
    assert head.stored() == {}, "a third file may follow"
    dashboards.tick()
    assert head.stored() == {"default": "a", "serve": "b"}


def test_dashboards_are_stored_again_only_if_they_change(head: Head) -> None:
    dashboards = head.dashboards()
    head.write("default", '{"uid": "a"}')
    dashboards.tick()
    dashboards.tick()
    head.store.delete(KEY)
    dashboards.tick()
    assert head.stored() == {}
    head.write("default", '{"uid": "longer"}')
    dashboards.tick()
    dashboards.tick()
    assert head.stored() == {"default": "longer"}


def test_a_short_session_has_its_dashboards(head: Head) -> None:
    head.write("default", '{"uid": "a"}')
    head.dashboards().tick(is_last=True)
    assert head.stored() == {"default": "a"}


def test_only_the_head_stores_dashboards(head: Head) -> None:
    head.write("default", '{"uid": "a"}')
    head.dashboards(is_head=False).tick(is_last=True)
    assert head.stored() == {}


@pytest.mark.parametrize(
    ("variable", "below"),
    [("RAY_METRICS_GRAFANA_DASHBOARD_OUTPUT_DIR", "."), ("RAY_METRICS_OUTPUT_ROOT", "grafana/dashboards")],
)
def test_dashboards_that_a_variable_moves_are_found(head: Head, variable: str, below: str) -> None:
    head.write("default", '{"uid": "moved"}', head.elsewhere / below)
    head.dashboards({variable: str(head.elsewhere)}).tick(is_last=True)
    assert head.stored() == {"default": "moved"}


def test_links_are_not_followed(head: Head) -> None:
    head.write("secret", '{"uid": "secret"}', head.elsewhere)
    (head.place / "default_grafana_dashboard.json").symlink_to(head.elsewhere / "secret_grafana_dashboard.json")
    head.dashboards().tick(is_last=True)
    (head.place / "default_grafana_dashboard.json").unlink()
    head.place.rmdir()
    head.place.symlink_to(head.elsewhere)
    head.dashboards().tick(is_last=True)
    assert head.stored() == {}


def test_too_many_bytes_are_refused_with_a_warning(head: Head, caplog: pytest.LogCaptureFixture) -> None:
    head.write("default", '{"uid": "a", "title": "' + "x" * (9 << 20) + '"}')
    dashboards = head.dashboards()
    for _ in range(3):
        dashboards.tick(is_last=True)
    assert head.stored() == {}
    assert [record.getMessage() for record in caplog.records] == [
        "the dashboards for Grafana are not stored: they are more than 50 files or 8388608 bytes"
    ]
