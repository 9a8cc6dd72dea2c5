"""How numbers, times and Ray's own texts are told to people: the filters of the templates.

Moments are Unix seconds, in UTC; spans are seconds.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]?")
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that turn the direction of the text around them."""


def plain(text: object) -> str:
    """Text from Ray without terminal colours and other characters that show nothing."""
    return _UNSEEN.sub("", _ANSI.sub("", str(text)))


def clip(text: object, most: int = 200) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(plain(str(text)[: most * 8]).split())
    return line if len(line) <= most else line[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def count(number: float) -> str:
    return f"{number:,.10g}" if isinstance(number, float) else f"{number:,}"


def short(number: float) -> str:
    """A count in few characters: 1,024, 61.2 k, 2.9 M."""
    for limit, divisor, form in ((1e9, 1e9, "{:.1f} G"), (1e6, 1e6, "{:.1f} M"), (1e5, 1e3, "{:.0f} k")):
        if number >= limit:
            return form.format(number / divisor)
    return f"{number / 1e3:.1f} k" if number >= 1e4 else count(number)


def size(number: float) -> str:
    """Bytes."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 60:
        return f"{int(seconds)} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 1440:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def ago(moment: float, now: float) -> str:
    """How long before now."""
    passed = now - moment
    if passed < 0:
        return "in the future"
    for limit, divisor, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h"), (86400 * 60, 86400, "d")):
        if passed < limit:
            return f"{int(passed // divisor)} {unit} ago"
    return f"{int(passed // (86400 * 30.44))} months ago" if passed < 86400 * 700 else f"{passed / 31556952:.0f} y ago"


def at(moment: float, now: float) -> str:
    """The time of day, with the date unless it is today's."""
    then, today = _utc(moment), _utc(now)
    if then.date() == today.date():
        return then.strftime("%H:%M")
    if then.year == today.year:
        return f"{then:%b} {then.day}, {then:%H:%M}"
    return f"{then:%b} {then.day}, {then.year}"


def clock(moment: float) -> str:
    """The time of day, to the second."""
    return _utc(moment).strftime("%H:%M:%S")


def day(moment: float) -> str:
    then = _utc(moment)
    return f"{then:%b} {then.day}, {then.year}"


def shell(text: object) -> str:
    """One word of a command line."""
    return shlex.quote(plain(text))


def iso(moment: float) -> str:
    return _utc(moment).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc(moment: float) -> str:
    """In full, for titles."""
    return _utc(moment).strftime("%Y-%m-%d %H:%M:%S UTC")


def percent(share: float) -> str:
    """A share of one, never rounded up to all of it."""
    shown = min(share * 100, 99.9) if share < 1 else 100.0
    return f"{shown:.1f}".removesuffix(".0") + "%"


def pc(share: float) -> str:
    """A length in SVG: percent of the width, from a share of one."""
    return f"{share * 100:.3f}".rstrip("0").rstrip(".") + "%"


def widths(parts: list[tuple[str, float]]) -> list[tuple[str, float, float]]:
    """A stacked bar: name, begin and width of each part that is not zero, as shares; none is too thin to be seen."""
    total = sum(number for _, number in parts) or 1
    shown = [(name, max(number / total, 0.025)) for name, number in parts if number]
    whole, begin, laid = sum(share for _, share in shown) or 1, 0.0, []
    for name, share in shown:
        laid.append((name, begin / whole, share / whole))
        begin += share
    return laid


def _utc(moment: float) -> datetime:
    """Moments that no calendar holds become the nearest that it does."""
    return datetime.fromtimestamp(min(max(moment, 0), 253402300799), UTC)


FILTERS: dict[str, Callable[..., Any]] = {
    filter_.__name__: filter_
    for filter_ in (
        plain,
        clip,
        count,
        short,
        size,
        duration,
        ago,
        at,
        clock,
        day,
        shell,
        iso,
        utc,
        percent,
        pc,
        widths,
    )
}


KINDS = {"rayjob": "RayJob", "rayservice": "RayService"}
