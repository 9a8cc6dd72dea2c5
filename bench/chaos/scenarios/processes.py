"""Processes that are killed, and sessions that change."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from bench.chaos.life import Life
from bench.chaos.spool_damage import flip, flip_bit, segments, tear
from bench.chaos.viewers import path_of

from .scenario import Scenario, steady

SERVER_KILLS = 30


def kill_collector(life: Life) -> None:
    for _ in range(8):
        life.wait(0.0, 0.8)
        life.kill_collector()
        life.wait(0.0, 0.2)
        life.restart_collector()


def kill_store(life: Life) -> None:
    for _ in range(2):
        life.wait(0.5, 1.5)
        life.machine.kill_store()
        life.wait(0.0, 1.0)
        life.machine.start_store()


def kill_server(life: Life) -> None:
    """At random moments of building and publishing the index of a session that has just grown."""
    for _ in range(SERVER_KILLS):
        life.wait(0.2, 0.5)
        life.machine.ask_in_background(f"{path_of(life, life.session)}/api/v0/tasks")
        life.wait(0.0, 1.2)
        life.machine.kill_server()
        life.machine.start_server()


def kill_builds(life: Life) -> None:
    for _ in range(6):
        life.wait(0.2, 0.5)
        life.machine.ask_in_background(f"{path_of(life, life.session)}/api/v0/tasks")
        life.wait(0.0, 0.8)
        for child in _children(life.machine.server.process.pid):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
                life.injected["build process: killed"] += 1


def _children(pid: int) -> list[int]:
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def kill_everything(life: Life) -> None:
    for _ in range(2):
        life.wait(0.3, 1.0)
        life.kill_collector()
        life.machine.kill_store()
        life.machine.kill_server()
        life.machine.start_store()
        life.restart_collector()
        life.machine.start_server()


def tear_writes(life: Life) -> None:
    for _ in range(8):
        life.wait(0.2, 0.6)
        life.kill_collector()
        for path in segments(life.data / "spool")[-1:]:
            tear(path, life.chance)
            life.injected["spool: torn write"] += 1
        life.restart_collector()


def flip_bits(life: Life) -> None:
    """While the store is away, so that the spool is the only copy."""
    for _ in range(5):
        life.machine.collector_proxy.refuse()
        life.wait(0.5, 1.5)
        life.kill_collector()
        for path in segments(life.data / "spool"):
            hit = flip_bit(path, life.chance)
            life.damaged |= hit
            life.injected["spool: bit flipped"] += bool(hit)
        life.restart_collector()
        life.machine.fail_requests(0.1)
        life.wait(0.2, 1.0)


def damage_positions(life: Life) -> None:
    """A bit flips in the files that say how far log files and events are uploaded."""
    for _ in range(6):
        life.wait(0.4, 1.2)
        life.kill_collector()
        for path in (*(life.data / "logs").glob("*.json"), life.data / "ledger.json"):
            if path.exists() and path.stat().st_size:
                flip(path, life.chance.randrange(path.stat().st_size), life.chance)
                life.injected["positions: bit flipped"] += 1
        life.restart_collector()


def change_session(life: Life) -> None:
    for _ in range(2):
        life.wait(1.0, 2.0)
        life.new_session()
        life.agent.session = life.session
        life.logs.move_to(life.logs_of(life.session))
        life.injected["session changed"] += 1
    life.wait(0.5, 1.0)


SCENARIOS = {
    "requests fail": Scenario("nothing else", steady),
    "collector killed": Scenario("the collector is killed 8 times", kill_collector),
    "store killed": Scenario("the store is killed twice", kill_store),
    "server killed": Scenario(
        f"the server is killed {SERVER_KILLS} times while it builds or publishes an index", kill_server, pause=0.2
    ),
    "builds killed": Scenario("the server's build processes are killed", kill_builds),
    "all killed": Scenario("collector, store and server are killed together", kill_everything),
    "writes torn": Scenario("the collector is killed, and the last write to the spool is torn", tear_writes),
    "bits flipped": Scenario("the store is away, and a bit of each file of the spool is flipped", flip_bits, share=0.1),
    "positions damaged": Scenario(
        "a bit of the collector's files with positions and counts is flipped", damage_positions
    ),
    "session changed": Scenario("Ray starts a new session twice while the old one is uploaded", change_session),
}
