"""A short run of `make chaos`, and the parts that judge."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from bench.chaos.clock import Clock
from bench.chaos.leaks import WARM_UP, Usage, leaks
from bench.chaos.log_files import invented_lines, line
from bench.chaos.machine import Machine
from bench.chaos.run import run
from bench.chaos.spool_damage import flip_bit, records, segments, tear
from bench.chaos.viewers import wrong_tasks
from ray_history.collector.ingest.spool import Spool
from tests.support.fixtures import skip_or_fail
from tests.support.processes import PartUnavailable


def test_nothing_is_lost_invented_or_answered_wrongly(tmp_path: Path) -> None:
    try:
        machine = Machine(tmp_path, seed=1)
    except PartUnavailable as reason:
        skip_or_fail("SeaweedFS", reason)
    with machine:
        result = run(machine, 1, 0, ["collector killed", "bits flipped"])
    assert result.findings == []
    assert result.injected.total() > 50
    assert all(found.acknowledged and found.log_bytes and found.answers for found in result.verdicts.values())


@pytest.mark.parametrize(
    "content", [line("a-1", 7), b"a-1 000000000 ...\n", b"a-1 0000\n", line("b-1", 0), line("a-1", 0)[1:]]
)
def test_invented_lines_are_found(content: bytes) -> None:
    assert invented_lines(line("a-1", 0) + content, {"a-1": 7}) == [content]


@pytest.mark.parametrize("rest", [b"", b"a", b"a-1", b"a-1 00", b"a-1 000000008 ..."])
def test_written_lines_are_not_invented(rest: bytes) -> None:
    assert invented_lines(b"".join(line("a-1", number) for number in range(7)) + rest, {"a-1": 7}) == []


def test_damage_to_the_spool_hits_the_events_that_it_names(tmp_path: Path) -> None:
    with closing(Spool(tmp_path)) as spool:
        spool.append([json.dumps([{"eventId": f"{number}"}]).encode() for number in range(9)])
    (path,) = segments(tmp_path)
    assert [record.events for record in records(path)] == [{str(number)} for number in range(9)]
    hit = flip_bit(path, random.Random(1))
    tear(path, random.Random(1))
    with closing(Spool(tmp_path)) as spool:
        (segment,) = spool.sealed()
        left = {json.loads(body)[0]["eventId"] for body in spool.read(segment)}
    assert len(hit) == 1
    assert left == {str(number) for number in range(9)} - hit


@pytest.mark.skipif(not Clock.can_jump(), reason="there is no C compiler")
def test_a_clock_jumps_in_a_running_process(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    code = "import time\nwhile input() != 'end': print(time.time(), time.monotonic(), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", code], env=clock.variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for ahead in (0.0, 86_400.5, -3600.0):
            clock.jump(ahead)
            child.stdin.write("now\n")
            child.stdin.flush()
            now, monotonic = map(float, child.stdout.readline().split())
            assert abs(now - time.time() - ahead) < 60
            assert abs(monotonic - time.monotonic()) < 60
        child.stdin.write("end\n")


def test_growth_after_the_warm_up_is_a_leak() -> None:
    flat = [Usage(1, 100 + 50 * number, 30, 40) for number in range(WARM_UP)] + [Usage(1, 300, 30, 40)] * 5
    assert leaks(flat) == []
    assert leaks([*flat, Usage(2, 900, 90, 90)]) == []
    (found,) = leaks([*flat, Usage(1, 300, 60, 40)])
    assert "descriptors of process 1" in found


def test_wrong_tasks_are_found() -> None:
    right = {"task_id": f"{1:016x}{'ff' * 12}01000000", "name": "task-1"}
    assert wrong_tasks([right, {**right, "name": ""}], {"1-0"}) == []
    assert len(wrong_tasks([{**right, "name": "task-2"}], {"1-0"})) == 1
    assert len(wrong_tasks([right], {"2-0"})) == 1
