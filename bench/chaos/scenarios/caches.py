"""The history server's cache disappears, or has no space left, while sessions are open."""

from __future__ import annotations

import shutil

from bench.chaos.life import Life
from bench.chaos.viewers import path_of

from .resources import needs_root
from .scenario import Scenario


def remove_cache(life: Life) -> None:
    cache = life.machine.server.cache
    for number in range(8):
        life.wait(0.3, 0.9)
        for path in cache.iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        life.injected["cache: removed"] += 1
        life.machine.server.get(f"{path_of(life, life.session)}/api/v0/tasks/summarize?n={number}")


def fill_cache(life: Life) -> None:
    disk = life.machine.cache_disk
    assert disk is not None
    for number in range(5):
        life.wait(0.3, 0.8)
        disk.fill(life.chance)
        life.injected["cache: full"] += 1
        life.machine.server.get(f"{path_of(life, life.session)}/api/v0/tasks?n={number}")
        life.wait(0.2, 0.8)
        disk.free()


SCENARIOS = {
    "cache removed": Scenario("the server's cache is removed 8 times while sessions are open", remove_cache),
    "cache full": Scenario("the disk of the server's cache is full 5 times", fill_cache, obstacle=needs_root),
}
