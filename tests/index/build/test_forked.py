"""A build process can be a copy of a command that has just begun. The same limits and errors hold as for any other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.index.build.forked import can_fork
from ray_history.index.build.usage import memory_of
from tests.support.captured import write_archive
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="only Linux lists the threads of a process"
)

COMMAND = """
import sys
from pathlib import Path
from tests.index.build.test_pool import *
from ray_history.index.build.forked import Forked

archive, way = Path(sys.argv[1]), sys.argv[2]
cache = archive.parent / "cache"
pool = BuildPool(partial(in_process, archive, {"hostile": way}), LIMITS, cache, processor_seconds=1, disk=1 << 30)
pools.SMALL = 0
pool.prepare()
indexer = Indexer(open_store(DirectorySettings(archive)), Cache(cache, 1 << 30), builds=pool)
worker = pool._spare.result()
assert type(worker._process) is Forked
print(worker.pid, flush=True)
try:
    with opened(indexer, "hostile") as built:
        print(built.manifest.rows["nodes"])
except Exception as error:
    print(getattr(error, "reason", ""), error)
indexer.close()
print("closed")
"""


def command(tmp_path: Path, way: str) -> subprocess.Popen[str]:
    write_archive(open_store(DirectorySettings(tmp_path / "archive")), Generation.C, Cluster("team", "hostile"))
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(tmp_path / "archive"), way],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.getcwd()},
        text=True,
    )


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("", "2"),
        ("spins", "time rebuilding the session takes more than its limit of"),
        ("unreachable", " no route to the bucket"),
        ("breaks", "error LookupError; see the server log"),
    ],
)
def test_a_copy_builds_within_limits(tmp_path: Path, way: str, said: str) -> None:
    with command(tmp_path, way) as running:
        printed, _ = running.communicate(timeout=120)
    pid, answer, closed = printed.splitlines()
    assert answer.startswith(said)
    assert (closed, running.returncode) == ("closed", 0)
    assert memory_of(int(pid)) == 0


def test_a_copy_ends_with_its_parent(tmp_path: Path) -> None:
    with command(tmp_path, "hangs") as running:
        assert running.stdout is not None
        pid = int(running.stdout.readline())
        assert memory_of(pid) > 0
        running.kill()
    until(lambda: memory_of(pid) == 0, "the end of the build process")


def test_a_process_with_threads_is_not_copied() -> None:
    script = (
        "import threading\nfrom ray_history.index.build.forked import can_fork\n"
        "print(can_fork())\nevent = threading.Event()\nthread = threading.Thread(target=event.wait)\n"
        "thread.start()\nprint(can_fork())\nevent.set()"
    )
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert printed.stdout.split() == ["True", "False"]


def test_where_threads_are_unknown_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(path: str) -> list[str]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "listdir", unknown)
    assert not can_fork()
