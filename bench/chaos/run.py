"""One life after the other, until the time is over."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.support.processes import ProcessFailed

from .leaks import Usage, leaks, usage
from .life import ENDS, Life
from .machine import Machine
from .scenarios import SCENARIOS, Scenario
from .verdict import Verdict, judge
from .viewers import Viewers

THROUGHOUT = 1_000_000
"""Number of the cluster that lives through the whole run. Its collector is never killed."""
ALL = "throughout"


@dataclass
class Result:
    """What a run found."""

    seed: int
    seconds: float = 0.0
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """By scenario."""
    faults: dict[str, Counter[str]] = field(default_factory=dict)
    """Injected faults by scenario, by kind."""
    server_usages: list[Usage] = field(default_factory=list)
    """Of the history server, after each life."""

    @property
    def injected(self) -> Counter[str]:
        return sum(self.faults.values(), Counter[str]())

    @property
    def findings(self) -> list[str]:
        return [f"{name}: {each}" for name, found in self.verdicts.items() for each in found.findings]


def run(machine: Machine, seed: int, minutes: float, names: Sequence[str]) -> Result:
    """Each scenario once, then all again in another order, until the time is over."""
    result = Result(seed)
    begin = time.monotonic()
    names = [name for name in names if not _is_impossible(name)]
    throughout = Life(machine, THROUGHOUT, seed, pause=1.0)
    try:
        throughout.start()
        for number, name in enumerate(_order(machine, names)):
            if number >= len(names) and time.monotonic() - begin > minutes * 60:
                break
            faults = result.faults.setdefault(name, Counter())
            verdict = live(machine, number, SCENARIOS[name], faults)
            result.verdicts.setdefault(name, Verdict()).add(verdict)
            result.server_usages.append(usage(machine.server.process.pid))
            throughout.usages.append(usage(throughout.collector.process.pid))
            _print(time.monotonic() - begin, name, verdict, result.injected.total())
        result.verdicts[ALL] = _last_verdict(throughout)
        result.verdicts[ALL].leaks += leaks(result.server_usages) + leaks(throughout.usages)
        _print(time.monotonic() - begin, ALL, result.verdicts[ALL], result.injected.total())
    finally:
        throughout.close()
    result.seconds = time.monotonic() - begin
    return result


def _last_verdict(throughout: Life) -> Verdict:
    throughout.heal()
    complete = throughout.end()
    verdict = judge(throughout)
    verdict.problems += [] if complete else [f"the collector did not store everything: {throughout.notes}"]
    return verdict


def _print(seconds: float, name: str, verdict: Verdict, faults: int) -> None:
    events = f"{verdict.stored:,} of {verdict.acknowledged:,} events"
    logs = f"{verdict.stored_log_bytes:,} of {verdict.log_bytes:,} log bytes"
    print(
        f"  {seconds:5.0f} s  {name}: {events}, {logs}, {verdict.answers:,} answers, {faults:,} faults so far",
        flush=True,
    )
    for each in verdict.findings:
        print(f"           {each}", flush=True)


def _order(machine: Machine, names: Sequence[str]) -> Iterator[str]:
    yield from names
    again = [name for name in names if not SCENARIOS[name].once]
    while again:
        yield from machine.chance.sample(again, len(again))


def _is_impossible(name: str) -> bool:
    obstacle = SCENARIOS[name].obstacle()
    if obstacle:
        print(f"  {name}: not run: {obstacle}")
    return bool(obstacle)


def live(machine: Machine, number: int, scenario: Scenario, faults: Counter[str]) -> Verdict:
    """One life with one scenario."""
    machine.heal()
    machine.injected.clear()
    life = Life(machine, number, machine.chance.randrange(1 << 32), *scenario.flags, pause=scenario.pause)
    viewers = Viewers(life)
    verdict = Verdict()
    try:
        scenario.prepare(life)
        life.start()
        viewers.start()
        machine.fail_requests(scenario.share)
        scenario.run(life)
        life.heal()
        complete = life.end(ENDS if scenario.can_end else 1) or not scenario.can_end
        viewers.stop()
        verdict = judge(life)
        verdict.problems += [] if complete else [f"the collector did not store everything: {life.notes}"]
    except (ProcessFailed, OSError, AssertionError, ValueError, KeyError):
        verdict.problems.append(f"the machine itself failed: {traceback.format_exc()}")
        machine.heal()
    finally:
        viewers.stop()
        life.close()
    verdict.wrong += [*viewers.wrong, *life.wrong]
    verdict.answers += viewers.statuses.total()
    for injected in (machine.injected, life.injected, life.logs.faults, *(agent.faults for agent in life.agents)):
        faults.update(injected)
    return verdict
