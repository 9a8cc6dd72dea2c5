"""The text format in which a Prometheus endpoint shows its samples."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

NAME_LABEL = "__name__"

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)', re.DOTALL)
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_KEY = re.compile(r'[^\s{]+\s*(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?', re.DOTALL)


class InvalidSeries(ValueError):
    """The text does not name a series."""


def samples(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The series and the value of each sample, as written; without comments, and without the time, if there is one."""
    for line in lines:
        if not line or line[0] == "#":
            continue
        key, _, value = line.rpartition(" ")
        # Ray writes no times. With one, what is left of the last space ends with the value instead of the labels.
        if key[-1:] != "}" and (" " in key or not key):
            key, value = _with_time(line)
        yield key, value


def _with_time(line: str) -> tuple[str, str]:
    found = _KEY.match(line)
    fields = line[found.end() :].split() if found else []
    if found is None or not fields:
        raise InvalidSeries(f"not a sample: {line[:200]!r}")
    return found[0].rstrip(), fields[0]


def labels_of(key: str) -> dict[str, str]:
    """The labels of a series, its name among them. Empty labels are left out: they are the same as none."""
    name, brace, inside = key.partition("{")
    name = name.strip()
    if not _NAME.fullmatch(name) or (brace and not key.endswith("}")):
        raise InvalidSeries(f"not a series: {key[:200]!r}")
    labels = {NAME_LABEL: name}
    inside, position = inside[:-1], 0
    while position < len(inside.rstrip()):
        found = _LABEL.match(inside, position)
        if found is None:
            raise InvalidSeries(f"not a label at position {len(name) + 1 + position}: {key[:200]!r}")
        if found[2]:
            labels[found[1]] = _unescaped(found[2])
        position = found.end()
    return labels


def sample_line(name: str, labels: Mapping[str, str], value: str, time_ms: int) -> str:
    """A sample with its time, as an endpoint would show it."""
    inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in sorted(labels.items()))
    return f"{name}{{{inside}}} {value} {time_ms}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value)
