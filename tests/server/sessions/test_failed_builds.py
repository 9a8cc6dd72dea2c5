"""A session that cannot be built says why, and is not built again by every request."""

from __future__ import annotations

import gc
import itertools
import weakref
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from ray_history.archive.catalog import read_catalog
from ray_history.archive.errors import Unreachable
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.history.engine import Limits
from ray_history.index.build.order import BuildFailed, BuildOrder, Report
from ray_history.index.build.steps import BuildHere
from ray_history.index.locks import CancelToken
from ray_history.index.manifest import Manifest
from ray_history.index.sources import list_sources
from ray_history.server.sessions.failed_builds import BuildsWithPauses
from tests.server.serving import served
from tests.server.sessions.test_manager import S, store_another_node
from tests.support.captured import write_archive

TOO_LARGE = BuildFailed("memory", "rebuilding the session takes more than its limit of 9 MiB of memory")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(made, Generation.C, Cluster("default", "demo"))
    return made


class FailingStandIn:
    """Fails with an error as long as there is one."""

    def __init__(self, store: Store, error: Exception | None) -> None:
        self.here, self.error, self.builds = BuildHere(store, Limits(512 << 20, 1)), error, 0

    def build(self, order: BuildOrder, report: Report, cancel: CancelToken) -> Manifest:
        self.builds += 1
        if self.error:
            raise self.error
        return self.here.build(order, report, cancel)

    def prepare(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


@pytest.mark.parametrize(("error", "status"), [(TOO_LARGE, 503), (BuildFailed("error", "KeyError"), 500)])
def test_a_failed_build_is_an_answer_with_its_reason(
    store: Store, tmp_path: Path, error: BuildFailed, status: int
) -> None:
    builds = FailingStandIn(store, error)
    with served(store, tmp_path / "cache", builds=builds) as server:
        for _ in range(3):
            answer = server.get(f"{S}/api/v0/nodes")
            assert (answer.status, answer.json["msg"]) == (status, f"the session cannot be opened: {error}")
        page = server.get(f"{S}/_session", {"Accept": "text/html"})
        assert (page.status, str(error) in page.body.decode()) == (status, True)
        last = server.get(f"{S}/_status", {"Accept": "text/event-stream"}).body.decode().strip().split("\n\n")[-1]
        assert msgspec.json.decode(last.removeprefix("data: "))["reason"].endswith(str(error))
        assert builds.builds == 1
        builds.error = None
        store_another_node(store)
        assert len(server.get(f"{S}/api/v0/nodes").rows) == 3


def order(store: Store) -> BuildOrder:
    (session,) = read_catalog(store).sessions
    return BuildOrder(list_sources(store, session), Path("unused"))


def test_pauses_become_longer(store: Store) -> None:
    now = 0.0
    inner = FailingStandIn(store, TOO_LARGE)
    builds = BuildsWithPauses(inner, lambda: now)
    tried = []
    while now < 20_000:
        with pytest.raises(BuildFailed):
            builds.build(order(store), lambda _: None, CancelToken())
        if inner.builds > len(tried):
            tried.append(now)
        now += 30
    assert [int(after - before) for before, after in itertools.pairwise(tried)] == [
        *(60, 120, 240, 480, 960, 1920),
        *[3600] * 4,
    ]


def test_other_errors_are_not_remembered(store: Store) -> None:
    inner = FailingStandIn(store, Unreachable("down"))
    builds = BuildsWithPauses(inner)
    for _ in range(2):
        with pytest.raises(Unreachable):
            builds.build(order(store), lambda _: None, CancelToken())
    assert inner.builds == 2


def test_what_is_remembered_is_small(store: Store) -> None:
    inner = FailingStandIn(store, BuildFailed("memory", "too large"))
    builds = BuildsWithPauses(inner)
    cancel = CancelToken()
    seen = weakref.ref(cancel)
    with suppress(BuildFailed):
        builds.build(order(store), lambda _: None, cancel)
    del cancel
    inner.error = None
    gc.collect()
    assert seen() is None, "the traceback of the failure keeps what the build had"
    with pytest.raises(BuildFailed, match="too large"):
        builds.build(order(store), lambda _: None, CancelToken())
