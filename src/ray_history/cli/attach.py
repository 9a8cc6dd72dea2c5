"""`ray-history attach` and `ray-history snapshot`: record a Ray that runs already."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ray_history.archive.settings import StorageOptions
from ray_history.local.places import Place, new_home

from .options import Command, take, with_settings


def with_attach_options(command: Command) -> Command:
    """Adds the options of both verbs."""
    decorated: Any = command
    decorated = click.option(
        "--session-dir", metavar="DIR", help="Directory of the session, if several run.", type=click.Path()
    )(decorated)
    decorated = click.option("--cluster", default="local", show_default=True, help="Cluster of the session.")(decorated)
    decorated = click.option("--namespace", default="default", show_default=True, help="Namespace of the session.")(
        decorated
    )
    return with_settings(StorageOptions)(decorated)  # type: ignore[no-any-return]


@click.command("attach")
@with_attach_options
def command(namespace: str, cluster: str, session_dir: str | None, **options: str) -> None:
    """Record the Ray that runs on this machine until it ends, or until Ctrl-C.

    Ray reads the variables for exporting events when it starts. Of one that was started without them, its logs and the
    state of its dashboard are recorded, with up to 10,000 tasks and actors, but no events.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    record(place_of(namespace, cluster, options), session_dir, stop.is_set, "until it ends, or until Ctrl-C")


def place_of(namespace: str, cluster: str, options: dict[str, str]) -> Place:
    return Place.of(take(StorageOptions, dict(options)).or_default(os.environ, quiet=True), namespace, cluster)


def record(place: Place, session_dir: str | None, is_over: Callable[[], bool], until: str) -> None:
    """Record a running session, and say where it can be seen."""
    from ray_history.local.attach import CannotAttach, attach, find_session

    place.storage.resolve(os.environ)
    logging.getLogger("ray_history").setLevel(logging.ERROR)
    try:
        found = find_session(Path(session_dir) if session_dir else None)
    except CannotAttach as error:
        raise click.ClickException(str(error)) from None
    name, home = found.directory.name, new_home()
    click.echo(
        f"ray-history: recording logs and state of {name} {until}; it was started without export of events", err=True
    )
    click.echo(f"ray-history: {place.link(name)}", err=True)
    done = attach(found, asdict(place.storage), (place.namespace, place.cluster), home, is_over)
    if not done.is_complete:
        click.echo(f"ray-history: not everything could be stored; the rest is in {home}", err=True)
        sys.exit(1)
    shutil.rmtree(home, ignore_errors=True)
    # Without waiting for threads that are blocked by a store.
    sys.stderr.flush()
    os._exit(0)
