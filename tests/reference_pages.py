"""Writes `docs/configuration.md` and `docs/api.md` from the program itself: `python -m tests.reference_pages`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from ray_history.cli.command import ray_history
from ray_history.server.api.openapi import document
from ray_history.server.routes import ROUTES

DOCS = Path(__file__).parent.parent / "docs"
_VARIABLES = re.compile(r"\s*\[env: ([A-Z0-9_]+(?:, [A-Z0-9_]+)*)(?:; default: (.+?))?\]")


def configuration() -> str:
    """Every command, flag and variable."""
    lines = [
        "# Configuration reference",
        "",
        "Every command, flag and variable. A flag wins over its variable, except for the collector, where the variable",
        "wins, as in KubeRay's. Variables of the storages themselves (keys, endpoints, identities) are in",
        "[storage.md](storage.md).",
        "",
        "Two more programs take KubeRay's command lines as they are, with one dash or two: `collector` is",
        "`ray-history collect`, and `historyserver` is `ray-history serve` on all addresses.",
        "",
        "For all commands, before the command's name:",
        "",
        *_table(ray_history),
    ]
    for name, command in _commands(ray_history, "ray-history"):
        told = re.sub(r"\s+", " ", (command.help or "").split("\n\n")[0].split("\b")[0]).strip()
        lines += ["", f"## `{name}`", "", told, "", *_table(command)]
    return "\n".join(lines) + "\n"


def _commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    for each, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, f"{name} {each}")
        elif not command.hidden:
            yield f"{name} {each}", command


def _table(command: click.Command) -> list[str]:
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if not options:
        return ["It takes no flags."]
    return ["| flag | variable | default | meaning |", "|---|---|---|---|", *map(_row, options)]


def _row(option: click.Option) -> str:
    told = option.help or ""
    found = _VARIABLES.search(told)
    variables = found[1].split(", ") if found else [option.envvar] if isinstance(option.envvar, str) else []
    default = found[2] if found and found[2] else _default(option)
    cells = [
        ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts)),
        ", ".join(f"`{name}`" for name in variables),
        f"`{default}`" if default not in ("", "none") else "",
        _VARIABLES.sub("", told).replace("|", "\\|"),
    ]
    return "| " + " | ".join(cells).replace("  ", " ") + " |"


def _default(option: click.Option) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    if option.is_flag and not option.secondary_opts:
        return ""
    if option.is_flag:
        return (option.opts if option.default else option.secondary_opts)[0]
    return str(option.default) if isinstance(option.default, str | int | float) else ""


def api() -> str:
    """Every route of a session's dashboard."""
    lines = [
        "# API reference",
        "",
        "Everything below stands under `/s/NAMESPACE/CLUSTER/SESSION`, and, for the session that a browser entered by",
        "cookie, under `/`. It takes GET and HEAD. The same as a document for programs: `openapi.json` beside them.",
        "How the answers differ from a live dashboard's: [fidelity.md](fidelity.md); logs: [logs.md](logs.md); what",
        "listings take beyond Ray, and the routes of the server itself: [server.md](server.md).",
        "",
        "| route | answer | parameters |",
        "|---|---|---|",
    ]
    for path, methods in document(ROUTES, "/")["paths"].items():
        operation = methods["get"]
        taken = [f"`{each['name']}`" for each in operation["parameters"] if each["in"] == "query"]
        lines.append(f"| `{path}` | {operation['summary']} | {' '.join(taken)} |")
    return "\n".join(lines) + "\n"


PAGES = {"configuration.md": configuration, "api.md": api}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
