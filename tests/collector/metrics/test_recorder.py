"""Metrics are scraped, kept on the volume, and uploaded: nothing but the open minute can be lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ray_history.archive import layout
from ray_history.archive.errors import Unreachable
from ray_history.archive.layout import Cluster
from ray_history.archive.ledger import MetricCounts
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.collector.destination import Destination
from ray_history.collector.ledger import LedgerBook
from ray_history.collector.metrics import MetricsRecorder, Schedule
from ray_history.collector.metrics.dashboards import SessionDashboards
from ray_history.collector.metrics.files import BlockFiles
from ray_history.collector.metrics.keep import chosen
from ray_history.collector.metrics.scrape import ScrapeFailed, scrape
from ray_history.collector.metrics.targets import AGENT, Target
from ray_history.collector.node.identity import RayNode
from ray_history.metrics.block import UP, Block, read_block
from tests.collector.metrics.endpoints import Endpoint, broken_endpoint, endpoint
from tests.metrics.test_block import content

SESSION, NODE = "session_2026-11-15_20-00-00_000000_1", "a" * 56
FAST = Schedule(0.02, save=0.05, block=0.2)
SERIES = 'ray_node_mem_used{instance="node"}'


class Place:
    """A collector's volume and archive."""

    def __init__(self, folder: Path) -> None:
        self.store: Store = open_store(DirectorySettings(folder / "archive"))
        self.store.check(create=True)
        self.volume = folder / "volume"
        self.book = LedgerBook(folder / "ledger.json")
        self.targets: list[Target] = []

    def recorder(self, schedule: Schedule = FAST, keep: str = "all") -> MetricsRecorder:
        destination = Destination(self.store, Cluster("default", "demo"))
        dashboards = SessionDashboards(destination, RayNode(self.volume, head=True), {}, is_head=True)
        return MetricsRecorder(
            destination, self.book, self.volume, lambda: self.targets, schedule, chosen(keep), dashboards
        )

    def blocks(self) -> list[Block]:
        prefix = layout.metrics_prefix("", Cluster("default", "demo"), SESSION)
        keys = sorted(info.key for info in self.store.list(prefix))
        parsed = [layout.parse_metric_block_key(key.removeprefix(prefix + "/")) for key in keys]
        assert all(key is not None and (key.node, key.endpoint) == (NODE, AGENT) for key in parsed)
        return [read_block(self.store.get(key)) for key in keys]

    def values(self) -> list[float | None]:
        """The values of the gauge in all blocks."""
        return [value for block in self.blocks() for value in content(block).get(SERIES, [])]

    @property
    def counts(self) -> MetricCounts:
        return self.book.session(SESSION).metrics


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def source(place: Place) -> Iterator[Endpoint]:
    with endpoint() as running:
        place.targets = [Target(SESSION, NODE, AGENT, running.port, f"10.0.0.1:{running.port}")]
        yield running


def tick_until(recorder: MetricsRecorder, is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_done():
        assert time.monotonic() < deadline
        recorder.tick()
        time.sleep(0.01)


def test_blocks_are_uploaded_while_the_cluster_runs(place: Place, source: Endpoint) -> None:
    source.value.set(5)
    recorder = place.recorder()
    tick_until(recorder, lambda: place.counts.blocks_stored >= 3)
    recorder.finish(time.monotonic() + 10)
    blocks = place.blocks()
    assert {block.target for block in blocks} == {f"10.0.0.1:{source.port}"}
    assert all(set(content(block)[UP]) == {1.0} for block in blocks)
    times = [time for block in blocks for time in block.timestamps]
    assert times == sorted(set(times))
    assert set(place.values()) == {5.0}
    assert place.counts.scrapes == len(times)
    assert place.counts.blocks_stored == len(blocks)


def test_the_last_values_are_stored_at_the_end(place: Place, source: Endpoint) -> None:
    recorder = place.recorder(Schedule(60))
    tick_until(recorder, lambda: place.counts.scrapes > 0)
    source.value.set(7)
    assert recorder.finish(time.monotonic() + 10)
    assert place.values()[-1] == 7
    assert not list(place.volume.rglob("*.rhm"))


def test_what_a_killed_collector_left_is_uploaded_by_the_next(place: Place, source: Endpoint) -> None:
    source.value.set(3)
    killed = place.recorder(Schedule(0.02, save=0.04, block=3600))
    tick_until(killed, lambda: any(place.volume.rglob("*.rhm")))
    (left,) = place.volume.rglob("*.rhm")
    stored = read_block(left.read_bytes())
    place.targets = []  # the scraping thread ends as if it had been killed; its file stays
    for recording, stop in killed._recordings.values():
        stop.set()
        recording.path = None
    place.recorder().tick()
    assert place.blocks()[0].timestamps[: len(stored.timestamps)] == stored.timestamps


def test_nothing_is_lost_while_the_bucket_cannot_be_reached(
    place: Place, source: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.value.set(1)
    recorder = place.recorder()

    def unreachable(*_: object) -> None:
        raise Unreachable("the bucket cannot be reached")

    with monkeypatch.context() as broken:
        broken.setattr(type(place.store), "put", unreachable)
        deadline = time.monotonic() + 60
        while len(BlockFiles(place.volume).all()) < 4 and time.monotonic() < deadline:
            try:
                recorder.tick()
            except Unreachable:
                time.sleep(0.01)
    assert recorder.finish(time.monotonic() + 10)
    assert len(place.values()) == place.counts.scrapes
    assert place.counts.blocks_lost == 0


def test_the_oldest_blocks_are_deleted_when_the_volume_is_full(
    place: Place, source: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ray_history.collector.metrics.recorder.MAX_BYTES", 100)
    files = BlockFiles(place.volume)
    for number in range(5):
        key = layout.MetricBlockKey(NODE, AGENT, 1_790_000_000_000 + number)
        files.write(files.path(SESSION, key), bytes(40))
    place.targets = []
    place.recorder().tick()
    assert place.counts.blocks_lost == 3
    assert place.counts.blocks_stored == 2


def test_an_endpoint_that_fails_is_down(place: Place) -> None:
    recorder = place.recorder(Schedule(0.02, save=0.05, block=3600))
    with endpoint() as running:
        running.value.set(1)
        place.targets = [Target(SESSION, NODE, AGENT, running.port, "10.0.0.1:1")]
        tick_until(recorder, lambda: place.counts.scrapes > 2)
    tick_until(recorder, lambda: place.counts.failures > 2)
    recorder.finish(time.monotonic() + 10)
    (block,) = place.blocks()
    up = content(block)[UP]
    assert up == sorted(up, reverse=True, key=lambda value: value or 0)
    assert set(up) == {0.0, 1.0}
    assert content(block)[SERIES].count(None) == up.count(0.0)


def test_an_endpoint_that_never_answers_costs_nothing(place: Place, source: Endpoint) -> None:
    place.targets = [Target(SESSION, NODE, "autoscaler", source.port + 1, "10.0.0.1:44217")]
    recorder = place.recorder()
    for _ in range(20):
        recorder.tick()
        time.sleep(0.01)
    assert recorder.finish(time.monotonic() + 5)
    assert place.blocks() == []
    assert place.counts == MetricCounts()


@pytest.mark.parametrize(("keep", "series"), [("panels", 1), ("ray_node_.*", 1), ("other", 0), ("all", 1)])
def test_only_chosen_metrics_are_stored(place: Place, source: Endpoint, keep: str, series: int) -> None:
    recorder = place.recorder(Schedule(60), keep)
    tick_until(recorder, lambda: place.counts.scrapes > 0)
    recorder.finish(time.monotonic() + 10)
    (block,) = place.blocks()
    assert len(block.series) == series + 1


def test_metrics_of_another_cluster_on_this_machine_are_not_recorded(place: Place) -> None:
    page = b'autoscaler_running_workers{SessionName="session_2026-11-15_19-00-00_000000_1"} 1\n'
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page)
    with broken_endpoint(answer) as port:
        place.targets = [Target(SESSION, NODE, "autoscaler", port, "10.0.0.1:44217")]
        recorder = place.recorder()
        recorder.tick()
        recorder.finish(time.monotonic() + 5)
    assert place.blocks() == []


def test_series_that_explode_are_cut_and_counted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray_history.collector.metrics.scrape.MAX_BYTES", 2_000)
    page = b"".join(b'ray_tasks{Name="%d"} 1\n' % number for number in range(50_000))
    with broken_endpoint(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page)) as port:
        place.targets = [Target(SESSION, NODE, AGENT, port, "10.0.0.1:1")]
        recorder = place.recorder(Schedule(60))
        tick_until(recorder, lambda: place.counts.scrapes > 0)
        recorder.finish(time.monotonic() + 10)
    (block,) = place.blocks()
    assert set(block.series) == {UP, *(f'ray_tasks{{Name="{number}"}}' for number in range(len(block.series) - 1))}
    assert block.left_out == place.counts.series_left_out == 50_000 - (len(block.series) - 1)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 503 busy\r\nContent-Length: 0\r\n\r\n", "status 503"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nray_tasks 1\n", "."),
        (b"nonsense\r\n\r\n", "."),
        (b"", "."),
    ],
)
def test_answers_that_are_no_page_are_failures(answer: bytes, reason: str) -> None:
    with broken_endpoint(answer) as port, pytest.raises(ScrapeFailed, match=reason):
        scrape(port, timeout=5)
