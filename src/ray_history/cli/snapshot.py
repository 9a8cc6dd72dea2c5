"""`ray-history snapshot`: record once what a Ray that runs already shows at this moment."""

from __future__ import annotations

import click

from .attach import place_of, record, with_attach_options


@click.command("snapshot")
@with_attach_options
def command(namespace: str, cluster: str, session_dir: str | None, **options: str) -> None:
    """Record once what the Ray on this machine shows at this moment: its logs, its state, its tasks and actors."""
    record(place_of(namespace, cluster, options), session_dir, lambda: True, "once")
