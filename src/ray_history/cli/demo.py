"""`ray-history demo`: a real Ray cluster, shown after it is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command("demo")
@click.option(
    "--directory",
    default="~/.cache/ray-history/demo",
    show_default=True,
    metavar="DIR",
    help="Directory of the demo's files, which make the next start quick.",
)
@click.option(
    "--storage",
    type=click.Choice(("file", "s3")),
    envvar="DEMO_STORAGE",
    show_envvar=True,
    default="file",
    show_default=True,
    help="Archive in a local directory, or on an S3 server that the demo starts.",
)
@click.option("--port", default=8080, show_default=True, help="Port of the history server; another if it is in use.")
@click.option("--fresh", is_flag=True, help="Discard the cluster of the last run and run a new one.")
@click.option("--small", is_flag=True, help="Run fewer jobs, without Ray Data and Ray Serve.")
def command(directory: str, **choices: Any) -> None:
    """Run a Ray cluster, kill it, and show its dashboard afterwards.

    Requires Ray: pip install 'ray-history[demo]'. Everything stays on this machine.
    """
    from ray_history.demo.run import CannotRun, Choices, run

    try:
        run(Choices(Path(directory).expanduser(), **choices))
    except CannotRun as error:
        raise click.ClickException(str(error)) from None
