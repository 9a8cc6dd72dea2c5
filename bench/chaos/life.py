"""One cluster: its collector, the events and log files of its sessions, and the disk that they are on."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.support.processes import Process, ProcessFailed, free_port, port_is_open

from .clock import Clock
from .disk import SmallDisk
from .events import Agent
from .leaks import Usage, usage
from .log_files import LogFiles
from .machine import PROGRAM, Machine, clean_environment, start

NAMESPACE = "chaos"
END_SECONDS = 60
"""Grace period of a collector at the end of a life, after everything was healed."""
MOST_MEMORY, MOST_DESCRIPTORS = 256, 160
"""Of a collector, in MiB: the limit of the sidecar in our samples; 64 growing log files and connections."""
ENDS = 3
"""So often a collector may be started and ended again until everything is stored."""


class CollectorRun:
    """`ray-history collect`, with a volume of its own."""

    def __init__(
        self, folder: Path, storage: str, *flags: str, cluster: str, variables: Mapping[str, str], data: Path
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.data = folder, data
        self.port = free_port()
        self.process = Process(
            [
                *(*PROGRAM, "--log-level=info", "collect", f"--storage={storage}", f"--cluster={cluster}"),
                *(f"--namespace={NAMESPACE}", f"--events-port={self.port}", f"--event-data-dir={data}"),
                *(f"--ray-tmp-root={folder / 'ray'}", "--push-interval=500ms", "--event-journal-interval=300ms"),
                *(f"--shutdown-grace={END_SECONDS}s", *flags),
            ],
            log=folder / "collector.log",
            ready=lambda: port_is_open(self.port),
            env=clean_environment(variables),
            start_seconds=60,
        )

    def end(self) -> bool:
        """SIGTERM; whether it said that everything is stored."""
        start = self.process.log.stat().st_size
        os.kill(self.process.pid, signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS + 30
        while self.process.running and time.monotonic() < deadline:
            time.sleep(0.05)
        ended = not self.process.running
        self.process.kill9()
        return ended and b"stored everything" in self.process.log.read_bytes()[start:]


class Life:
    """A cluster with one node, from its first event to the end of its collector."""

    def __init__(self, machine: Machine, number: int, seed: int, *flags: str, pause: float = 0.02) -> None:
        """`pause` is the time between batches, and between writes to log files."""
        self.machine, self.number = machine, number
        self.cluster = f"c{number}"
        self.chance = random.Random(seed)
        self.node = self.chance.randbytes(28).hex()
        self.folder = machine.folder / self.cluster
        self.data = self.folder / "data"
        self.ray = self.folder / "ray"
        self.session = ""
        self.sessions: list[str] = []
        self.injected: Counter[str] = Counter()
        self.damaged: set[str] = set()
        """Events whose only copy was damaged: they may be missing if the collector reports it."""
        self.notes: list[str] = []
        self.wrong: list[str] = []
        """Wrong answers of servers of this life."""
        self.disk: SmallDisk | None = None
        self.clock: Clock | None = None
        self.agents: list[Agent] = []
        self.seconds: list[CollectorRun] = []
        """Further collectors of the node."""
        self._at_end = ExitStack()
        self.usages: list[Usage] = []
        """Of the collector."""
        self.new_session()
        self.collector = CollectorRun(
            self.folder,
            machine.storage,
            *(f"--node-id={self.node}", *flags),
            cluster=self.cluster,
            variables=machine.variables(machine.collector_proxy),
            data=self.data,
        )
        self.agent = Agent(self.collector.port, self.session, self.node, seed=seed, pause=pause)
        self.agents.append(self.agent)
        self.logs = LogFiles(self.logs_of(self.session), seed=seed, pause=pause)

    def logs_of(self, session: str) -> Path:
        return self.ray / session / "logs"

    def new_session(self) -> None:
        """Ray starts anew on this node."""
        self.session = f"session_2026-11-15_20-{len(self.sessions):02d}-55_739110_{self.number + 1}"
        self.sessions.append(self.session)
        self.logs_of(self.session).mkdir(parents=True)
        link = self.ray / "next"
        link.symlink_to(self.ray / self.session)
        link.rename(self.ray / "session_latest")

    def start(self) -> None:
        self.collector.process.start()
        self.agent.start()
        self.logs.start()

    def add_second(self, collector: CollectorRun, agent: Agent) -> None:
        """Start another collector of this node, and what posts to it."""
        collector.process.start()
        agent.start()
        self.seconds.append(collector)
        self.agents.append(agent)

    def at_end(self, call: Callable[[], None]) -> None:
        self._at_end.callback(call)

    def sent(self, session: str) -> set[str]:
        return set().union(*(agent.sent.get(session, set()) for agent in self.agents))

    def acknowledged(self, session: str) -> set[str]:
        return set().union(*(agent.acknowledged.get(session, set()) for agent in self.agents))

    def disk_of(self) -> SmallDisk:
        assert self.disk is not None
        return self.disk

    def kill_collector(self) -> None:
        self.collector.process.kill9()
        self.injected["collector: killed"] += 1

    def restart_collector(self) -> None:
        start(self.collector.process)

    def try_to_start_collector(self) -> None:
        """Where it may refuse to start, with a reason."""
        with suppress(ProcessFailed):
            self.collector.process.start()

    def wait(self, least: float, most: float) -> None:
        time.sleep(self.chance.uniform(least, most))

    def heal(self) -> None:
        """Everything works again, and nothing new is sent."""
        self.machine.heal()
        if self.disk is not None:
            self.disk.make_writable()
            self.disk.free()
        if self.clock is not None:
            self.clock.jump(0)
        self.restart_collector()
        for agent in self.agents:
            agent.stop()
        self.logs.stop()

    def end(self, attempts: int = ENDS) -> bool:
        """End the collector in order; whether it then stored everything."""
        self._wait_for_former_sessions()
        self.usages.append(usage(self.collector.process.pid))
        ends = [self._end(collector, attempts) for collector in (self.collector, *self.seconds)]
        return all(ends)

    def _end(self, collector: CollectorRun, attempts: int) -> bool:
        for attempt in range(attempts):
            start(collector.process)
            if collector.end():
                return True
            self.notes.append(f"end {attempt + 1} did not store everything: {collector.process.log_tail(2)}")
        return False

    def _wait_for_former_sessions(self) -> None:
        """The logs of an ended session are finished in the background, some time after its last byte."""
        deadline = time.monotonic() + END_SECONDS
        for session in self.sessions[:-1]:
            finished = self.data / "logs" / f"{session}.finished"
            while not finished.exists() and time.monotonic() < deadline:
                time.sleep(0.1)

    def close(self) -> None:
        """End what still runs."""
        for agent in self.agents:
            agent.stop()
        self.logs.stop()
        for collector in (self.collector, *self.seconds):
            collector.process.kill9()
        self._at_end.close()
        if self.disk is not None:
            self.disk.unmount()
