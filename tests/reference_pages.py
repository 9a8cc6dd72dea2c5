"""Writes the generated parts of `docs/` from the program itself: `python -m tests.reference_pages`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import duckdb

from ray_history.cli.main import ray_history
from ray_history.cli.options import SettingOption
from ray_history.history.registry import TABLES, Table
from ray_history.history.sql import END_OF_TIME, create_source_tables, query
from ray_history.history.sql.absent import NEEDS, body_of
from ray_history.server.api.openapi import document
from ray_history.server.routes import ROUTES

DOCS = Path(__file__).parent.parent / "docs"


def configuration() -> str:
    """The page of all commands, options and variables."""
    verbs = list(commands(ray_history, "ray-history"))
    lines = [
        "# Configuration reference",
        "",
        "All commands with their options and environment variables. The command line takes precedence over the",
        "environment; for `collect` it is the reverse, as in KubeRay. The variables of storage backends (keys,",
        "endpoints, identities) are described in [storage.md](storage.md).",
        "",
        "Two more programs accept KubeRay's command lines, with one dash or two: `collector` runs",
        "`ray-history collect`, and `historyserver` runs `ray-history serve` on all addresses and without",
        "authentication.",
        "",
        "Options of all commands, before the command's name:",
        "",
        *_table(ray_history),
    ]
    for name, command in verbs:
        summary = re.sub(r"\s+", " ", (command.help or "").split("\n\n")[0]).strip()
        lines += ["", f"## `{name}`", "", summary, "", *_table(command)]
    lines += ["", "## Former names", "", "Previous names of options and variables keep working.", ""]
    lines += ["| former name | name |", "|---|---|"]
    lines += sorted({row for _, command in verbs for option in options(command) for row in _former_names(option)})
    return "\n".join(lines) + "\n"


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """The commands of a group, with their full names."""
    context = click.Context(group, info_name=name)
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {each}")
        elif command is not None and not command.hidden:
            yield f"{name} {each}", command


def options(command: click.Command) -> list[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option) and not option.hidden]


def _table(command: click.Command) -> list[str]:
    rows = [_row(option) for option in options(command)]
    return ["| option | variable | default | meaning |", "|---|---|---|---|", *rows]


def _row(option: click.Option) -> str:
    former = option.former_flags if isinstance(option, SettingOption) else ()
    flags = [name for name in (*option.opts, *option.secondary_opts) if name not in former]
    default = _default(option)
    cells = [
        ", ".join(f"`{name}`" for name in flags),
        ", ".join(f"`{name}`" for name in _variables(option)[:1]),
        f"`{default}`" if default else "",
        (option.help or "").replace("|", "\\|"),
    ]
    return "| " + " | ".join(cells).replace("  ", " ") + " |"


def _variables(option: click.Option) -> list[str]:
    return [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())


def _default(option: click.Option) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    if option.is_flag and option.secondary_opts:
        return (option.opts if option.default else option.secondary_opts)[0]
    if isinstance(option.default, bool):
        return ""
    return str(option.default) if isinstance(option.default, str | int | float) else ""


def _former_names(option: click.Option) -> Iterator[str]:
    former_flags = option.former_flags if isinstance(option, SettingOption) else ()
    yield from (f"| `{former}` | `{option.opts[0]}` |" for former in former_flags)
    variable, *former_variables = _variables(option) or [""]
    yield from (f"| `{former}` | `{variable}` |" for former in former_variables)


def api() -> str:
    """The page of all routes of a session."""
    lines = [
        "# API reference",
        "",
        "These routes exist under `/s/NAMESPACE/CLUSTER/SESSION`, and under `/` for the session that a browser has",
        "entered by cookie. All accept GET and HEAD. `openapi.json` beside them describes them for programs. See",
        "[fidelity.md](fidelity.md) for the differences from a live dashboard, [logs.md](logs.md) for logs, and",
        "[server.md](server.md) for what listings accept beyond Ray and for the routes of the server itself.",
        "",
        "| route | answer | parameters |",
        "|---|---|---|",
    ]
    for path, methods in document(ROUTES, "/")["paths"].items():
        operation = methods["get"]
        parameters = [f"`{each['name']}`" for each in operation["parameters"] if each["in"] == "query"]
        lines.append(f"| `{path}` | {operation['summary']} | {' '.join(parameters)} |")
    return "\n".join(lines) + "\n"


_SOURCES = re.compile(r"(?<=<!-- sources of columns -->\n).*(?=<!-- end -->)", re.DOTALL)


def fidelity() -> str:
    """The page about differences, with the sources of columns as the registry declares them."""
    lines = ["", "| table | columns | sources, the first one first |", "|---|---|---|"]
    for table in filter(lambda each: each.precedence, TABLES.values()):
        lines += _rows_of(table)
    return _SOURCES.sub(lambda _: "\n".join(lines) + "\n\n", (DOCS / "fidelity.md").read_text())


def _rows_of(table: Table) -> Iterator[str]:
    precedence = table.precedence
    assert precedence is not None
    for order, columns in precedence.columns.items():
        sources = [precedence.sources[source] for source in order.split()]
        longest = [name for name in columns.split() if name in precedence.longest]
        names = ", ".join(f"`{name}`" for name in columns.split() if name not in longest)
        yield f"| {table.name} | {names} | {'; '.join(sources)} |"
        yield from (f"| {table.name} | `{name}` | the longer list of: {'; '.join(sources)} |" for name in longest)
    if table.has_mentioned_rows:
        yield f"| {table.name} | rows that none of these has | tasks and actors that mention one |"


def columns() -> str:
    """The columns of the common table expressions that absent.py leaves out."""
    database = duckdb.connect()
    create_source_tables(database)
    described = dict[str, dict[str, dict[str, str]]]()
    for name, needs in NEEDS.items():
        text = re.sub(r"\bmoment\b", str(END_OF_TIME), query(name))
        described[name] = {}
        for expression in " ".join(needs).split():
            _, end = body_of(expression, text)
            rows = database.execute(f"describe {text[:end]}) from {expression}").fetchall()
            described[name][expression] = {column: kind for column, kind, *_ in rows}
    return json.dumps(described, indent=1) + "\n"


PAGES = {
    "configuration.md": configuration,
    "api.md": api,
    "../src/ray_history/history/sql/columns.json": columns,
}
PARTS = {"fidelity.md": fidelity}
"""Pages of which a part is generated."""

if __name__ == "__main__":
    for name, page in (PAGES | PARTS).items():
        (DOCS / name).write_text(page())
