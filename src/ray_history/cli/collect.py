"""`ray-history collect`: run the collector."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ray_history.collector.settings import SETTINGS, Setting, resolve
from ray_history.ray_variables import recording_variables

from .options import with_store

if TYPE_CHECKING:
    from ray_history.archive.stores import Store


def _option(setting: Setting) -> Any:
    # The texts are parsed by `resolve`: there the environment wins over the command line, as in KubeRay.
    switch: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if setting.kind == "boolean" else {}
    return click.option(
        *setting.flags,
        setting.name,
        envvar=setting.variable,
        show_envvar=True,
        default=setting.default or None,
        show_default=True,
        metavar=setting.kind.upper(),
        help=setting.help,
        **switch,
    )


def _with_collector_settings(command: Any) -> Any:
    for setting in reversed(SETTINGS):
        command = _option(setting)(command)
    return command


_VARIABLES = "\n".join(f"  {name}={value}" for name, value in recording_variables(8084).items())
_HELP = f"""Run the collector sidecar of one Ray node.

It stores the node's events and log files in the archive and, on the head node, the state of the dashboard.
Ray exports its events to the collector if these variables are set for every Ray process, drivers included:

\b
{_VARIABLES}
"""


@click.command("collect", help=_HELP)
@with_store
@_with_collector_settings
@click.pass_context
def command(context: click.Context, /, store: Store, **flags: str | None) -> None:
    from ray_history.collector.process import leave, run

    # Not those that click took from variables: `resolve` treats a malformed variable as absent.
    given = {
        name: text for name, text in flags.items() if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    leave(run(resolve(given, os.environ), store, os.environ))
