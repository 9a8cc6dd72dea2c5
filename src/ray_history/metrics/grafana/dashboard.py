"""The panels, rows and variables of a dashboard, read from Grafana's JSON.

A dashboard is written by the head of a cluster, and by its users: a panel that cannot be read has a `problem` and no
queries, and costs no other panel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ray_history.decoding import DECODING_ERRORS

MAX_PANELS = 1000
MAX_TARGETS = 50
_LONGEST_TITLE = 300
_LONGEST_DESCRIPTION = 5000


class InvalidDashboard(ValueError):
    """The text is no dashboard."""


class Target(msgspec.Struct, frozen=True, rename="camel"):
    """One query of a panel."""

    expr: str = ""
    legend_format: str | None = ""
    ref_id: str = ""
    format: str | None = ""
    instant: bool | None = False
    range: bool | None = False
    hide: bool | None = False

    @property
    def is_instant(self) -> bool:
        return bool(self.instant) and not self.range


class Override(msgspec.Struct, frozen=True, rename="camel"):
    """How series with this name, or with names that match `/…/`, are drawn."""

    alias: str = ""
    hidden_series: bool | None = None
    dashes: bool | None = None
    color: str | None = None
    stack: bool | str | None = None
    fill: float | None = None


class _Grid(msgspec.Struct, frozen=True):
    x: int = 0
    y: int = 0
    w: int = 12
    h: int = 8


class _Defaults(msgspec.Struct, frozen=True):
    unit: str | None = None
    min: float | None = None
    max: float | None = None


class _FieldConfig(msgspec.Struct, frozen=True):
    defaults: _Defaults = _Defaults()


class _Axis(msgspec.Struct, frozen=True):
    format: str | None = None
    min: float | str | None = None
    max: float | str | None = None


class _XAxis(msgspec.Struct, frozen=True):
    mode: str | None = None


class _Legend(msgspec.Struct, frozen=True, rename="camel"):
    show: bool | None = True
    hide_zero: bool | None = False


class _Panel(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of a panel that are used."""

    id: int
    title: str = ""
    description: str | None = ""
    type: str = ""
    grid_pos: _Grid = _Grid()
    targets: list[Target] = []
    stack: bool = False
    fill: float | None = None
    linewidth: float | None = None
    bars: bool | None = False
    null_point_mode: str | None = None
    field_config: _FieldConfig = _FieldConfig()
    yaxes: list[_Axis] = []
    xaxis: _XAxis = _XAxis()
    legend: _Legend = _Legend()
    series_overrides: list[Override] = []


class _Variable(msgspec.Struct, frozen=True, rename="camel"):
    """A variable as Grafana writes it."""

    name: str
    type: str = ""
    label: str | None = None
    query: Any = None
    regex: str | None = None
    include_all: bool | None = False
    all_value: str | None = None
    multi: bool | None = False
    hide: int | None = 0
    current: Any = None
    options: Any = None


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart."""

    number: int
    """Unique in its dashboard."""
    title: str
    description: str
    kind: str
    """`graph`, `bars` (one for each series), `stat`, `gauge` or `piechart`."""
    width: int
    """Of 24 columns."""
    height: int
    unit: str
    least: float | None
    most: float | None
    """The limits of the vertical axis, if they are fixed."""
    targets: tuple[Target, ...] = ()
    overrides: tuple[Override, ...] = ()
    is_stacked: bool = False
    fill: float = 0
    line_width: float = 1
    connects_gaps: bool = False
    has_legend: bool = True
    hides_zeros: bool = False
    problem: str = ""
    """Why it cannot be drawn."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below one heading; without a title, those before the first heading."""

    title: str
    is_collapsed: bool
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of queries."""

    name: str
    label: str
    kind: str
    """`query`, `custom` or `interval`."""
    query: str
    regex: str
    options: tuple[str, ...]
    """Those that the dashboard itself has."""
    default: str
    has_all: bool
    all_value: str
    is_multiple: bool
    is_hidden: bool


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard."""

    uid: str
    title: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...]

    def panel(self, number: int) -> Panel | None:
        return next((panel for row in self.rows for panel in row.panels if panel.number == number), None)

    def variable(self, name: str) -> Variable | None:
        return next((variable for variable in self.variables if variable.name == name), None)


def read_dashboard(text: str | bytes) -> Dashboard:
    """A dashboard of Grafana's JSON; raises `InvalidDashboard`."""
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except DECODING_ERRORS as error:
        raise InvalidDashboard(f"the dashboard cannot be read: {error}") from error
    templating = found.get("templating")
    variables = templating.get("list") if isinstance(templating, dict) else None
    return Dashboard(
        str(found.get("uid") or ""),
        str(found.get("title") or "")[:_LONGEST_TITLE],
        tuple(_rows(_objects(found.get("panels")))),
        tuple(_variables(_objects(variables))),
    )


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value[:MAX_PANELS] if isinstance(each, dict)] if isinstance(value, list) else []


def _rows(panels: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    """The rows: a collapsed one contains its panels, those of an open one follow it."""
    title, is_collapsed, found = "", False, list[Panel]()
    for panel in panels:
        if panel.get("type") != "row":
            found.append(_panel(panel))
            continue
        if found:
            yield Row(title, is_collapsed, tuple(found))
        title, is_collapsed = str(panel.get("title") or "")[:_LONGEST_TITLE], bool(panel.get("collapsed"))
        found = [_panel(each) for each in _objects(panel.get("panels"))]
    if found:
        yield Row(title, is_collapsed, tuple(found))


def _panel(value: Mapping[str, Any]) -> Panel:
    try:
        return _readable_panel(msgspec.convert(value, type=_Panel, strict=False))
    except msgspec.ValidationError as error:
        number = value.get("id")
        title = str(value.get("title") or "")[:_LONGEST_TITLE]
        problem = f"This panel of the dashboard cannot be read: {error}"
        return Panel(
            number if isinstance(number, int) else 0, title, "", "graph", 12, 8, "", None, None, problem=problem
        )


def _readable_panel(found: _Panel) -> Panel:
    defaults, axis = found.field_config.defaults, found.yaxes[0] if found.yaxes else _Axis()
    least, most = (
        axis_limit if default is None else default
        for axis_limit, default in ((_number(axis.min), defaults.min), (_number(axis.max), defaults.max))
    )
    kind = "bars" if found.type == "graph" and found.bars and found.xaxis.mode == "series" else found.type
    return Panel(
        found.id,
        found.title[:_LONGEST_TITLE],
        (found.description or "")[:_LONGEST_DESCRIPTION],
        kind if kind in ("bars", "stat", "gauge", "piechart") else "graph",
        min(max(found.grid_pos.w, 4), 24),
        min(max(found.grid_pos.h, 4), 24),
        defaults.unit or axis.format or "",
        least,
        most,
        tuple(found.targets[:MAX_TARGETS]),
        tuple(found.series_overrides[:MAX_TARGETS]),
        found.stack or found.type == "heatmap",
        found.fill or 0,
        found.linewidth or 1,
        found.null_point_mode == "connected",
        found.legend.show is not False,
        bool(found.legend.hide_zero),
    )


def _number(value: float | str | None) -> float | None:
    """A limit of an axis, which Grafana writes as text."""
    try:
        return None if value is None or value == "" else float(value)
    except ValueError:
        return None


def _variables(values: Iterable[Mapping[str, Any]]) -> Iterator[Variable]:
    for value in values:
        try:
            found = msgspec.convert(value, type=_Variable, strict=False)
        except msgspec.ValidationError:
            continue  # queries with its name then say that it is unknown
        if found.type in ("query", "custom", "interval", "constant", "textbox"):
            yield _variable(found)


def _variable(found: _Variable) -> Variable:
    query = found.query.get("query") if isinstance(found.query, dict) else found.query
    query = query if isinstance(query, str) else ""
    options = () if found.type == "query" else _options(query, found.options)
    current = found.current.get("value") if isinstance(found.current, dict) else None
    default = current if isinstance(current, str) and not current.startswith("$__") else ""
    return Variable(
        found.name,
        found.label or found.name.replace("_", " "),
        found.type,
        query,
        found.regex or "",
        options,
        default or (options[0] if options else ""),
        bool(found.include_all),
        found.all_value or "",
        bool(found.multi),
        found.hide == 2 or found.type == "constant",
    )


def _options(query: str, options: object) -> tuple[str, ...]:
    """The values of a variable that lists them: `head, worker`."""
    listed = [part.strip() for part in query.split(",") if part.strip()]
    values = [each.get("value") for each in _objects(options)]
    return tuple(listed or [value for value in values if isinstance(value, str) and not value.startswith("$__")])
