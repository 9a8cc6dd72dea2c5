"""Two answers of a live dashboard and ours, leaf by leaf.

A leaf counts if the live dashboard gave the same value twice. Rows are matched by their id, never by position; every
leaf of a row that only one side has is unequal. Rows that began, or that changed, after one side looked for the last
time are set apart and counted: it cannot have what the other saw.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import rules

ABSENT = "<absent>"
REPORTED_WITHIN = 2.0
"""Seconds: Ray's processes report once a second, so that a live answer lacks what just began."""
CMDLINE = "cmdline"
"""A list that counts as one leaf: a worker's new title leaves a thousand empty words behind."""
Key = Callable[[Any], str]


@dataclass(frozen=True)
class Difference:
    """Leaves that are unequal at one place."""

    path: str
    live: Any
    ours: Any
    leaves: int


@dataclass
class Comparison:
    """The comparison of one answer."""

    url: str
    answered: float
    """When the live dashboard gave its last answer, in seconds."""
    observed: float
    """When the archive got its last event, or the dashboard's last answer about this."""
    moved: Mapping[str, float] = field(default_factory=dict)
    """When tasks, actors and workers changed for the last time, by id: they may enter or leave lists of one state."""
    equal: int = 0
    total: int = 0
    unscored: int = 0
    drifting: int = 0
    """Leaves that two live answers did not agree about."""
    rows_apart: int = 0
    leaves_apart: int = 0
    differences: list[Difference] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._unscored = [rule.path for rule in rules.UNSCORED if rule.url.search(self.url)]
        self._apart = False

    @property
    def ratio(self) -> float | None:
        return self.equal / self.total if self.total else None

    def compare(self, first: Any, last: Any, ours: Any, path: str = "") -> None:
        if path and self._is_unscored(path):
            self.unscored += 1
        elif isinstance(last, dict) and isinstance(ours, dict) and (last or ours):
            self._objects(first if isinstance(first, dict) else {}, last, ours, path)
        elif isinstance(last, list) and isinstance(ours, list) and (last or ours) and _name(path) != CMDLINE:
            self._lists(first if isinstance(first, list) else [], last, ours, path + "[]")
        else:
            self._leaf(first, last, ours, path)

    def _is_unscored(self, path: str) -> bool:
        return any(pattern.search(path) for pattern in self._unscored)

    def _leaf(self, first: Any, last: Any, ours: Any, path: str) -> None:
        if not same(first, last):
            self.drifting += 1
        elif self._same(last, ours, path):
            self.equal += 1
            self.total += 1
        elif self._apart:
            self.leaves_apart += 1
        else:
            self._note(path, last, ours)

    def _same(self, live: Any, ours: Any, path: str) -> bool:
        if _name(path) == CMDLINE and isinstance(live, list) and isinstance(ours, list):
            return _titles(live) == _titles(ours)
        if self.url.startswith("/api/cluster_status") and isinstance(live, str) and isinstance(ours, str):
            return _status_lines(live) == _status_lines(ours)
        return same(live, ours)

    def _note(self, path: str, live: Any, ours: Any) -> None:
        number = self.leaves(ours if live == ABSENT else live, path)
        if number:
            self.total += number
            self.differences.append(Difference(path, live, ours, number))

    def leaves(self, value: Any, path: str) -> int:
        """The number of leaves that are scored; an empty object or list is one."""
        if path and self._is_unscored(path):
            return 0
        if isinstance(value, dict) and value:
            return sum(self.leaves(item, _below(path, key)) for key, item in value.items())
        if isinstance(value, list) and value and _name(path) != CMDLINE:
            return sum(self.leaves(item, path + "[]") for item in value)
        return 1

    def _objects(self, first: dict[str, Any], last: dict[str, Any], ours: dict[str, Any], path: str) -> None:
        row = self._is_apart(last, ours)
        outer, self._apart = self._apart, self._apart or row
        self.rows_apart += row
        for key in last.keys() | ours.keys():
            before, live, rebuilt = (answer.get(key, ABSENT) for answer in (first, last, ours))
            self.compare(before, live, rebuilt, _below(path, key))
        self._apart = outer

    def _is_apart(self, live: dict[str, Any], ours: dict[str, Any]) -> bool:
        """Whether this is a row that one side saw after the other had looked for the last time."""
        if not _identity(live):
            return False
        return self._has_moved(_identity(live)) or newest(ours) > self.answered or newest(live) > self.observed

    def _has_moved(self, identity: str) -> bool:
        return self.moved.get(identity, 0) > self.answered - REPORTED_WITHIN

    def _lists(self, first: list[Any], last: list[Any], ours: list[Any], path: str) -> None:
        if any(isinstance(item, str) for item in (*last, *ours)):
            self._values(first, last, ours, path)
            return
        rows = last or ours
        is_table = all(isinstance(item, dict) for item in (*last, *ours))
        key = _key_of(rows, timeline="/timeline" in self.url) if is_table else None
        if key is None:
            for number in range(max(len(last), len(ours))):
                self.compare(_at(first, number), _at(last, number), _at(ours, number), path)
            return
        earlier, live, rebuilt = (_by(key, items) for items in (first, last, ours))
        for name in live.keys() | rebuilt.keys():
            for number in range(max(len(live.get(name, ())), len(rebuilt.get(name, ())))):
                before, row, our_row = (_at(items.get(name, ()), number) for items in (earlier, live, rebuilt))
                self._rows(before, row, our_row, path)

    def _rows(self, first: Any, last: Any, ours: Any, path: str) -> None:
        row = ours if last == ABSENT else last
        if last == ABSENT and (began(ours) > self.answered - REPORTED_WITHIN or first != ABSENT):
            self._set_apart(ours, path)
        elif ours == ABSENT and (began(last) > self.observed or first == ABSENT):
            self._set_apart(last, path)
        elif ABSENT in (last, ours) and self._has_moved(_identity(row)):
            self._set_apart(row, path)
        elif ABSENT in (last, ours):
            self._note(path, last, ours)
        else:
            self.compare(last if first == ABSENT else first, last, ours, path)

    def _set_apart(self, row: Any, path: str) -> None:
        self.rows_apart += 1
        self.leaves_apart += self.leaves(row, path)

    def _values(self, first: list[Any], last: list[Any], ours: list[Any], path: str) -> None:
        """Values without an identity, as a multiset."""
        earlier, live, rebuilt = (Counter(map(_text, items)) for items in (first, last, ours))
        common = live & rebuilt
        self.equal += common.total()
        self.total += common.total()
        for name in (live - rebuilt).elements():
            self._note(path, name, ABSENT) if name in earlier else self._set_apart(name, path)
        for name in (rebuilt - live).elements():
            is_later = name in earlier or any(
                map(self._has_moved, re.findall(r"[0-9a-f]{56}", name))
            )  # files of workers
            self._set_apart(name, path) if is_later else self._note(path, ABSENT, name)


def same(live: Any, ours: Any) -> bool:
    if isinstance(live, bool) or isinstance(ours, bool):
        return live is ours
    if isinstance(live, int | float) and isinstance(ours, int | float):
        return live == ours or math.isclose(live, ours, rel_tol=1e-9) or (live != live and ours != ours)
    return type(live) is type(ours) and bool(live == ours)


def began(row: Any) -> float:
    """When a row began, in seconds; 0 if it does not say so."""
    if isinstance(row, dict) and "ts" in row:
        return float(row["ts"]) / 1e6
    return next((_seconds(row[name]) for name in rules.BEGIN if isinstance(row, dict) and _seconds(row.get(name))), 0)


def newest(row: dict[str, Any]) -> float:
    """The last time in a row."""
    return max((_seconds(value) for value in _times(row)), default=0)


def _identity(row: Any) -> str:
    """The id of a task, an actor or a worker; empty if it is none."""
    names = ("task_id", "actor_id", "actorId", "worker_id")
    return next((str(row[name]) for name in names if isinstance(row, dict) and row.get(name)), "")


def _times(row: dict[str, Any]) -> Iterator[Any]:
    for key, value in row.items():
        if re.search(r"(?i)time(_ms)?$|timestamp$", key) or key == "created_ms":
            yield value
        elif key == "events" and isinstance(value, list):
            yield from (time for item in value if isinstance(item, dict) for time in _times(item))


def _seconds(value: Any) -> float:
    if isinstance(value, str) and re.fullmatch(r"\d{9,}(\.\d+)?", value):
        value = float(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0
    return value / 1000 if value > 1e11 else float(value)


def _name(path: str) -> str:
    return path.rpartition(".")[2]


def _titles(words: Sequence[Any]) -> list[str]:
    """A command line: a worker shows what it runs, and leaves empty words behind."""
    return [re.sub(r"^ray::.*", "ray::", word) for word in words if isinstance(word, str) and word]


def _below(path: str, key: str) -> str:
    name = "{id}" if re.fullmatch(r"[0-9a-f]{8,}", key) else key
    return f"{path}.{name}" if path else name


def _status_lines(text: str) -> list[str]:
    return sorted(rules.CLOCK.sub("", text).split("\n"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _at(items: Sequence[Any], number: int) -> Any:
    return items[number] if number < len(items) else ABSENT


def _by(key: Key, rows: Sequence[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    for same_key in found.values():
        same_key.sort(key=_text)
    return found


def _key_of(rows: Sequence[dict[str, Any]], *, timeline: bool) -> Key | None:
    if timeline:
        return _span
    for names in rules.ROW_KEYS:
        keys = [[_inside(row, name) for name in names] for row in rows]
        if all(any(value is not None for value in key) for key in keys) and len(set(map(_text, keys))) == len(rows):
            return lambda row, names=names: _text([_inside(row, name) for name in names])  # type: ignore[misc]
    return None


def _span(row: dict[str, Any]) -> str:
    names = ("ph", "name", "pid", "tid") if row.get("ph") == "M" else ("ph", "cat", "name", "ts", "dur")
    return _text([row.get(name) for name in names])


def _inside(row: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        row = row.get(name) if isinstance(row, dict) else None
    return row
