"""The table of a run, printed and written into docs/failure-modes.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from .run import Result
from .scenarios import SCENARIOS
from .verdict import Verdict

PAGE = Path(__file__).parents[2] / "docs" / "failure-modes.md"
BEGIN = "<!-- Written by `python -m bench.chaos --write`. -->\n"
END = "<!-- The end of the written part. -->\n"


COLUMNS = (
    *("what happens", "runs", "faults", "events acknowledged", "lost", "damaged on disk", "log bytes", "lost"),
    *("answers", "wrong", "leaks"),
)


def table(result: Result) -> Iterator[str]:
    faults, totals = result.injected.total(), Verdict()
    yield _row(*COLUMNS)
    yield "|---" * len(COLUMNS) + "|"
    for name, found in result.verdicts.items():
        summary = SCENARIOS[name].summary if name in SCENARIOS else "a collector that lives through all of this"
        yield _row(summary, *_cells(found, result.faults.get(name, Counter()).total()))
        totals.add(found)
    yield _row("together", *_cells(totals, faults))


def _cells(found: Verdict, faults: int) -> Iterator[str]:
    numbers = (
        *(found.lives, faults, found.acknowledged, found.acknowledged - found.stored - found.damaged, found.damaged),
        *(found.log_bytes, found.log_bytes - found.stored_log_bytes, found.answers, len(found.wrong), len(found.leaks)),
    )
    return (f"{number:,}" for number in numbers)


def lines(result: Result) -> Iterator[str]:
    """The section of the page."""
    faults, first, last = f"{result.injected.total():,}", result.server_usages[0], result.server_usages[-1]
    yield f"A run of {result.seconds / 60:.0f} minutes with `CHAOS_SEED={result.seed}` and {faults} injected faults:"
    yield ""
    yield from table(result)
    yield ""
    yield f"The history server held {first.memory} MiB, {first.descriptors} descriptors and {first.threads} threads"
    yield f"after the first row, and {last.memory} MiB, {last.descriptors} and {last.threads} after the last."
    yield "The faults by kind:"
    yield ""
    yield from kinds(result)


def kinds(result: Result) -> Iterator[str]:
    yield _row("fault", "injected")
    yield "|---|---|"
    for name, number in sorted(result.injected.items()):
        yield _row(name, f"{number:,}")


def write(result: Result) -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    written = "\n".join(lines(result))
    PAGE.write_text(f"{before}{BEGIN}\n{written}\n\n{END}{after}")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
