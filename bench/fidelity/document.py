"""The section of docs/fidelity.md with the scores of captures, from `results.json` beside this module."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .reasons import reason
from .scenarios import SCENARIOS

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "fidelity.md"
BEGIN = "<!-- Written by `python -m bench.fidelity docs`. -->\n"
END = "<!-- The end of the written part. -->\n"

Summary = dict[str, Any]


def collect(captures: Path) -> None:
    """Replace the results by the summaries of these captures, without their examples; others stay."""
    kept = {(found["ray"], found["scenario"]): found for found in results()}
    for file in captures.glob("*/summary.json"):
        found = json.loads(file.read_text())
        places = ("route", "path", "leaves")
        found["differences"] = [{name: place[name] for name in places} for place in found["differences"]]
        found["counts"].pop("worst")
        kept[found["ray"], found["scenario"]] = found
    lines = ",\n".join(json.dumps(kept[key]) for key in sorted(kept))  # a capture is a line, so that diffs are readable
    RESULTS.write_text(f"[\n{lines}\n]\n" if lines else "[]\n")


def results() -> list[Summary]:
    return list(json.loads(RESULTS.read_text())) if RESULTS.exists() else []


def page() -> str:
    """The whole page, with its section renewed."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{chr(10).join(section(results()))}\n\n{END}{after}"


def section(found: Sequence[Summary]) -> Iterator[str]:
    yield _row(
        "Ray", "scenario", "mean of routes", "of answers", "leaves", "rows set apart", "events", "log bytes lost"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for each in found:
        counts = each["counts"]
        yield _row(
            each["ray"],
            each["scenario"],
            f"{each['mean_of_routes']:.2%}",
            f"{each['mean_of_answers']:.2%} of {each['answers']}",
            f"{each['equal'] / each['total']:.2%} of {each['total']:,}",
            f"{each['rows_apart']:,}",
            f"{counts['archived']:,} of {counts['acknowledged']:,}",
            f"{counts['log_bytes'] - counts['stored_log_bytes']:,} of {counts['log_bytes']:,}",
        )
    yield ""
    yield "The scenarios:"
    yield ""
    yield from (f"- {name}: {scenario.summary}" for name, scenario in SCENARIOS.items())
    for scenario in SCENARIOS:
        columns = [each for each in found if each["scenario"] == scenario]
        if columns:
            yield ""
            yield from _routes(scenario, columns)
    yield ""
    yield from _differences(found)


def _routes(scenario: str, columns: Sequence[Summary]) -> Iterator[str]:
    names = sorted({name for each in columns for name, ratio in each["routes"].items() if ratio < 1})
    yield f"Routes of {scenario} clusters that are not equal everywhere, in percent:"
    yield ""
    yield _row("route", *(each["ray"] for each in columns))
    yield "|---" * (1 + len(columns)) + "|"
    for name in names:
        ratios = [each["routes"].get(name) for each in columns]
        yield _row(f"`{name}`", *("" if ratio is None else _percent(ratio) for ratio in ratios))


def _differences(found: Sequence[Summary]) -> Iterator[str]:
    leaves: dict[str, int] = defaultdict(int)
    routes: dict[str, set[str]] = defaultdict(set)
    clusters: dict[str, set[str]] = defaultdict(set)
    for each in found:
        capture = f"{each['ray']} {each['scenario']}"
        for place in each["differences"]:
            why = reason(place["route"], place["path"], capture)
            leaves[why] += place["leaves"]
            routes[why].add(f"`{place['route']}`")
            clusters[why].add(capture)
    yield "All differences, by reason:"
    yield ""
    yield _row("reason", "leaves", "routes", "captures")
    yield "|---|---|---|---|"
    for why in sorted(leaves, key=lambda why: -leaves[why]):
        captures = ", ".join(sorted(clusters[why])) if len(clusters[why]) < len(found) else "all"
        yield _row(why, f"{leaves[why]:,}", ", ".join(sorted(routes[why])), captures)


def _percent(ratio: float) -> str:
    return "100" if ratio == 1 else f"{100 * ratio:.1f}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
