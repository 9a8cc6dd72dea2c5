"""How tables are built, apart from what they hold."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ray_history.history.building import Builder, Limits
from tests.history.rebuilt import lifecycle, rebuild, task, task_id


def modesty() -> set[int]:
    """How nice the threads of this process are."""
    return {int(path.read_text().rpartition(")")[2].split()[16]) for path in Path("/proc/self/task").glob("*/stat")}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has threads that are nicer than others")
def test_threads_that_build_give_way_to_all_others(tmp_path: Path) -> None:
    mine = os.nice(0)
    with Builder(tmp_path, Limits()):
        assert modesty() == {mine, mine + 5}
    assert os.nice(0) == mine


def test_an_event_longer_than_usual_is_read(tmp_path: Path) -> None:
    events = [task(task_id(number)) for number in range(5)] + [lifecycle(task_id(1), ("RUNNING", 1))]
    built = rebuild(tmp_path, [*events, task(task_id(9), callSite="x" * 5_000_000)], cuts=[3])
    assert (built.counts.events, built.counts.dropped) == (7, 0)
    assert [len(row["call_site"] or "") for row in built.rows("tasks") if row["task_id"] == task_id(9)] == [5_000_000]
