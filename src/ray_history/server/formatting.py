"""Formatting of numbers, times and texts from Ray, for pages and messages; also the filters of the templates.

Moments are Unix seconds and shown in UTC; durations are in seconds.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-_]?")
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and characters that change the direction of the text around them."""


def plain(text: object) -> str:
    """Remove terminal colours and invisible characters from a text."""
    return _INVISIBLE.sub("", _ANSI.sub("", str(text)))


def clip(text: object, most: int = 200) -> str:
    """Shorten a text to one line of at most `most` characters."""
    line = " ".join(plain(str(text)[: most * 8]).split())
    return line if len(line) <= most else line[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def count(number: float) -> str:
    return f"{number:,.10g}" if isinstance(number, float) else f"{number:,}"


def plural(number: int, noun: str) -> str:
    """Format a count with its noun: 1 task, 1,024 tasks."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def short(number: float) -> str:
    """Format a count in a few characters: 1,024, 61.2 k, 2.9 M."""
    for limit, divisor, form in ((1e9, 1e9, "{:.1f} G"), (1e6, 1e6, "{:.1f} M"), (1e5, 1e3, "{:.0f} k")):
        if number >= limit:
            return form.format(number / divisor)
    return f"{number / 1e3:.1f} k" if number >= 1e4 else count(number)


def size(number: float) -> str:
    """Format a number of bytes."""
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
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    if minutes < 1440:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def ago(moment: float, now: float) -> str:
    passed = now - moment
    if passed < 0:
        return "in the future"
    for limit, divisor, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h"), (86400 * 60, 86400, "d")):
        if passed < limit:
            return f"{int(passed // divisor)} {unit} ago"
    return f"{int(passed // (86400 * 30.44))} months ago" if passed < 86400 * 700 else f"{passed / 31556952:.0f} y ago"


def at(moment: float, now: float) -> str:
    """Format the time of day, with the date unless it is today."""
    then, today = utc_datetime(moment), utc_datetime(now)
    if then.date() == today.date():
        return then.strftime("%H:%M")
    if then.year == today.year:
        return f"{then:%b} {then.day}, {then:%H:%M}"
    return day(moment)


def clock(moment: float) -> str:
    """Format the time of day with seconds."""
    return utc_datetime(moment).strftime("%H:%M:%S")


def day(moment: float) -> str:
    return utc_datetime(moment).strftime("%b %-d, %Y")


def shell(text: object) -> str:
    """Quote a text as one word of a command line."""
    return shlex.quote(plain(text))


def iso(moment: float) -> str:
    return utc_datetime(moment).strftime("%Y-%m-%dT%H:%M:%SZ")


def utc(moment: float) -> str:
    """Format date and time in full, for titles."""
    return utc_datetime(moment).strftime("%Y-%m-%d %H:%M:%S UTC")


def percent(share: float) -> str:
    """Format a share of 1, never rounded up to 100%."""
    shown = min(share * 100, 99.9) if share < 1 else 100.0
    return f"{shown:.1f}".removesuffix(".0") + "%"


def pc(share: float) -> str:
    """Format a share of 1 as a length in SVG."""
    return f"{share * 100:.3f}".rstrip("0").rstrip(".") + "%"


def widths(parts: list[tuple[str, float]]) -> list[tuple[str, float, float]]:
    """Lay out a stacked bar: name, begin and width of each part that is not 0, as shares of the width.

    No part is too thin to be visible.
    """
    total = sum(number for _, number in parts) or 1
    visible = [(name, max(number / total, 0.025)) for name, number in parts if number]
    whole, begin, laid_out = sum(share for _, share in visible) or 1, 0.0, []
    for name, share in visible:
        laid_out.append((name, begin / whole, share / whole))
        begin += share
    return laid_out


def utc_datetime(moment: float) -> datetime:
    """The moment as a datetime; moments outside the calendar become its first or last second."""
    return datetime.fromtimestamp(min(max(moment, 0), 253402300799), UTC)


FILTERS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
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

OWNER_KINDS = {"rayjob": "RayJob", "rayservice": "RayService"}
"""Names of the Kubernetes resources that own a cluster, by their spelling in object keys."""
