"""Disks that are full or read-only, clocks that jump, a store that is away for an hour."""

from __future__ import annotations

import time

from bench.chaos.clock import Clock
from bench.chaos.disk import SmallDisk
from bench.chaos.life import Life

from .scenario import Scenario

OUTAGE = 36.0
"""Seconds of an hour: push intervals and backoffs are a hundredth of the defaults."""


def needs_root() -> str:
    return "" if SmallDisk.can_mount() else "only root may mount a tmpfs"


def _needs_compiler() -> str:
    return "" if Clock.can_jump() else "there is no C compiler for the library that moves the clock"


def small_disk(life: Life) -> None:
    life.disk = SmallDisk(life.data, 12)


def fill_disk(life: Life) -> None:
    for _ in range(6):
        life.wait(0.2, 0.6)
        life.disk_of().fill(life.chance)
        life.injected["disk: full"] += 1
        life.wait(0.3, 1.2)
        if life.chance.random() < 0.4:
            life.kill_collector()
            life.try_to_start_collector()
        life.disk_of().free()
        life.restart_collector()


def protect_disk(life: Life) -> None:
    for _ in range(4):
        life.wait(0.3, 0.8)
        running = life.chance.random() < 0.5
        if not running:
            life.kill_collector()
        if not _make_read_only(life):
            life.kill_collector()
            life.disk_of().make_read_only()
        life.injected["disk: read-only"] += 1
        if not running:
            life.try_to_start_collector()
        life.wait(0.5, 1.5)
        life.disk_of().make_writable()
        life.restart_collector()


def _make_read_only(life: Life) -> bool:
    """The kernel refuses while a file is open for writing: wait until the spool has no segment that grows."""
    life.agent.hold()
    try:
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            if life.disk_of().make_read_only():
                return True
            time.sleep(0.01)
        return False
    finally:
        life.agent.go_on()


def jumping_clock(life: Life) -> None:
    life.clock = Clock(life.folder)
    life.collector.process.env.update(life.clock.variables)


def move_clock(life: Life) -> None:
    assert life.clock is not None
    for number in range(12):
        life.wait(0.2, 0.6)
        life.clock.jump(life.chance.choice([-1, 1]) * life.chance.choice([0.5, 60, 600, 3600, 86_400, 40 * 86_400]))
        life.injected["clock jumped"] += 1
        if number % 4 == 3:
            life.kill_collector()
            life.restart_collector()
    life.clock.jump(0)


def store_away(life: Life) -> None:
    """Refused connections; the proxy counts each attempt."""
    before = life.machine.collector_proxy.faults_hit
    life.machine.collector_proxy.refuse()
    end = time.monotonic() + OUTAGE
    while time.monotonic() < end:
        life.wait(1.0, 5.0)
        if life.chance.random() < 0.2:
            life.kill_collector()
            life.restart_collector()
    life.injected["store: away"] += life.machine.collector_proxy.faults_hit - before


SCENARIOS = {
    "disk full": Scenario("the collector's disk is full 6 times", fill_disk, small_disk, obstacle=needs_root),
    "disk read-only": Scenario(
        "the collector's disk is read-only 4 times", protect_disk, small_disk, obstacle=needs_root
    ),
    "clock jumps": Scenario(
        "the collector's clock jumps by up to 40 days 12 times", move_clock, jumping_clock, obstacle=_needs_compiler
    ),
    "store away": Scenario(
        "the store is away for an hour (36 s, with push intervals of 100 ms instead of 10 s)",
        store_away,
        flags=("--push-interval=100ms",),
        once=True,
    ),
}
