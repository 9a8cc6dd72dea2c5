"""The command `ray-history`: finds the verb, runs it, and turns its errors into exit codes.

Exit codes: 0 success; 2 wrong usage or configuration, with one line that says how to fix it; 1 any other failure.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from ray_history import __version__
from ray_history.archive.errors import ArchiveError, Unreachable
from ray_history.archive.names import InvalidName
from ray_history.collector.settings import WrongSetting
from ray_history.log_setup import LogSettings, configure_logging

from .options import with_settings

logger = logging.getLogger(__name__)

VERBS = (
    "run",
    "ui",
    "attach",
    "snapshot",
    "import",
    "collect",
    "serve",
    "sessions",
    "index",
    "inject",
    "dashboard",
    "demo",
)
"""Each is the module of this package whose `command` runs it, in the order of `--help`."""
_MODULES = {"import": "import_session"}
"""Those whose verb is a keyword of Python."""


class Verbs(click.Group):
    """Imports a verb's module when the verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"{__package__}.{_MODULES.get(cmd_name, cmd_name)}").command
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="ray-history")
@with_settings(LogSettings)
@click.pass_context
def ray_history(context: click.Context, /, log_level: str, log_format: str) -> None:
    """Record what Ray clusters do, and show it after they are gone."""
    unknown_flags = context.obj or ()
    context.obj = LogSettings(log_level, log_format)
    configure_logging(context.obj)
    for flag in unknown_flags:
        logger.warning("ignored the unknown flag %s", flag)


def main(arguments: list[str] | None = None, *, unknown_flags: Sequence[str] = ()) -> NoReturn:
    """Run the command; expected failures are reported in one line on stderr.

    `unknown_flags` were left out of the arguments; each is logged as a warning.
    """
    try:
        ray_history.main(arguments, standalone_mode=False, obj=unknown_flags)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(0)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        sys.exit(1)
    except (ArchiveError, InvalidName, WrongSetting) as error:
        click.echo(f"ray-history: {error}", err=True)
        sys.exit(1 if isinstance(error, Unreachable) else 2)
    except BrokenPipeError:  # `ray-history sessions | head`
        # The interpreter flushes stdout once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(0)
