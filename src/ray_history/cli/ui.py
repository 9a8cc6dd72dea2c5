"""`ray-history ui`: the pages of this user's sessions, in a browser."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import webbrowser
from typing import TYPE_CHECKING, Any

import click

from ray_history.archive.settings import StorageOptions
from ray_history.log_setup import LogSettings

from .options import take, with_settings
from .preflight import check_cache, check_clock

if TYPE_CHECKING:
    from ray_history.server.settings import ServerSettings

_HOST = "127.0.0.1"
_STARTS_WITHIN = 30.0


@click.command("ui")
@with_settings(StorageOptions)
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="Port; another if it is in use."
)
@click.option("--browser/--no-browser", default=True, help="Open a browser, if there is one.")
@click.argument("name", metavar="[[NAMESPACE/]CLUSTER[/SESSION]]", default="")
@click.pass_context
def command(context: click.Context, /, name: str, port: int, browser: bool, **options: Any) -> None:
    """Show the sessions of an archive in a browser.

    A server of the same archive that runs already is used, if it was started by `ray-history ui`. Otherwise one is
    started on this machine's loopback address, and runs until Ctrl-C. SESSION may be `latest`, and is so by default.
    """
    from ray_history.local.server import announced, running_server

    storage = take(StorageOptions, options).or_default(os.environ)
    url = storage.resolve(os.environ).url
    path = page_of(name)
    if running := running_server(url):
        click.echo(f"{running}{path}")
        _open(f"{running}{path}", wanted=browser)
        return
    server = f"http://{_HOST}:{_usable(port)}"
    settings = _settings(context, storage, server)
    with announced(url, server):
        click.echo(f"{server}{path}    Ctrl-C ends the server")
        if browser:
            threading.Thread(target=_open_when_ready, args=(f"{server}{path}",), daemon=True).start()
        _serve(settings)


def page_of(name: str) -> str:
    """The path of the page of `[NAMESPACE/]CLUSTER[/SESSION]`: the newest session, if none is named."""
    if not name:
        return "/"
    parts = name.removesuffix("/").split("/")
    if len(parts) > 3 or not all(parts):
        raise click.UsageError(f"{name!r} is not of the form [NAMESPACE/]CLUSTER[/SESSION]")
    if (len(parts) == 2 and (parts[1] == "latest" or parts[1].startswith("session_"))) or len(parts) == 1:
        parts = ["default", *parts]
    namespace, cluster, session = [*parts, "latest"][:3]
    return f"/s/{namespace}/{cluster}/{session}/_session"


def _settings(context: click.Context, storage: StorageOptions, server: str) -> ServerSettings:
    from dataclasses import asdict

    from ray_history.server.settings import ServerSettings

    log = context.find_object(LogSettings) or LogSettings()
    # The lines of each request are for those who run a server for others.
    level = "warning" if log.log_level == "info" else log.log_level
    return ServerSettings(
        **asdict(storage),
        host=_HOST,
        port=int(server.rpartition(":")[2]),
        log_level=level,
        log_format=log.log_format,
    )


def _serve(settings: ServerSettings) -> None:
    from ray_history.archive.stores import open_store
    from ray_history.log_setup import configure_logging
    from ray_history.server.process import serve

    configure_logging(settings)
    open_store(settings.resolve(os.environ)).check()
    check_clock()
    check_cache(settings.cache_folder)
    serve(settings)


def _usable(port: int) -> int:
    """The port, or any free one if it is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


def _open_when_ready(url: str) -> None:
    port = int(url.split("/")[2].rpartition(":")[2])
    deadline = time.monotonic() + _STARTS_WITHIN
    while time.monotonic() < deadline:
        try:
            socket.create_connection((_HOST, port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            _open(url, wanted=True)
            return


def _open(url: str, *, wanted: bool) -> None:
    if wanted and not webbrowser.open(url):
        logging.getLogger(__name__).debug("no browser found")
