"""`ray-history dashboard`: builds of the Ray Dashboard's frontend."""

from __future__ import annotations

from pathlib import Path

import click

from ray_history.index.settings import IndexSettings
from ray_history.server.settings import WebSettings

from .options import with_settings


@click.group("dashboard")
def command() -> None:
    """Manage Ray Dashboard builds."""


@command.command("add")
@with_settings(IndexSettings, only=["cache_dir"])
@click.argument("version")
def add(version: str, cache_dir: str) -> None:
    """Download the dashboard of a Ray version from the package index."""
    from ray_history.server.dashboard.download import CannotAdd, add_dashboard

    try:
        click.echo(f"added {add_dashboard(version, _downloads(cache_dir))}")
    except CannotAdd as error:
        raise click.ClickException(str(error)) from None


@command.command("list")
@with_settings(IndexSettings, WebSettings, only=["cache_dir", "dashboard_dir"])
def list_builds(cache_dir: str, dashboard_dir: str | None) -> None:
    """List the installed dashboard versions."""
    from ray_history.server.dashboard.builds import Frontends

    given = [Path(dashboard_dir)] if dashboard_dir else []
    found = Frontends([*given, _downloads(cache_dir)])
    for version in found.versions:
        click.echo(f"{version}  {found.builds[version].directory}")


def _downloads(cache_dir: str) -> Path:
    return IndexSettings(cache_dir).cache_folder / "dashboards"
