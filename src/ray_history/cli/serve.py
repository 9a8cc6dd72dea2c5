"""`ray-history serve`: run the history server."""

from __future__ import annotations

import logging
import os
from typing import Any

import click

from ray_history.archive.settings import StorageOptions
from ray_history.index.settings import IndexSettings
from ray_history.log_setup import LogSettings
from ray_history.server.settings import AuthSettings, LiveSettings, ServerSettings, WebSettings

from .options import with_settings
from .preflight import check_address, check_cache, check_clock

logger = logging.getLogger(__name__)

_WITHOUT_EFFECT = {
    "session_process_timeout": "sessions are opened without a time limit, and the page shows the progress",
    "session_cache_max_memory": "sessions are cached on disk; see --cache-size",
    "session_cache_ttl": "open sessions are refreshed from the archive; the least recently used one is closed",
}
"""Flags of KubeRay's history server that are accepted so that its command line keeps working."""


def _with_kuberay_flags(command: Any) -> Any:
    for name in _WITHOUT_EFFECT:
        command = click.option("--" + name.replace("_", "-"), hidden=True)(command)
    return command


@click.command("serve")
@with_settings(StorageOptions, WebSettings, AuthSettings, LiveSettings, IndexSettings)
@_with_kuberay_flags
@click.pass_context
def command(context: click.Context, /, **flags: Any) -> None:
    """Run the history server.

    It shows finished and running sessions in the Ray Dashboard, and answers the dashboard's API for them.
    """
    from ray_history.archive.stores import open_store
    from ray_history.server.process import serve

    for name, reason in _WITHOUT_EFFECT.items():
        if flags.pop(name) is not None:
            logger.warning("--%s has no effect: %s", name.replace("_", "-"), reason)
    log = context.find_object(LogSettings) or LogSettings()
    given = ServerSettings(**flags, log_level=log.log_level, log_format=log.log_format)
    settings = given.or_default(os.environ)
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key must be given together")
    _check(settings)
    store = open_store(settings.resolve(os.environ))
    store.check()
    check_clock()
    check_cache(settings.cache_folder)
    check_address(settings.host, settings.port)
    scheme, host = "https" if settings.tls_cert else "http", settings.host
    shown = f"[{host}]" if ":" in host else host
    logger.info("serving %s on %s://%s:%d%s/", store.url, scheme, shown, settings.port, settings.base_path)
    serve(settings)


def _check(settings: ServerSettings) -> None:
    """Refuse settings that the worker processes would refuse, before any of them starts."""
    from ray_history.kube import Misconfigured
    from ray_history.server.auth import InvalidAuth, check_exposure, is_local, make_backend
    from ray_history.server.live import api_server, make_fleet

    try:
        check_exposure(settings, settings.host)
        make_backend(settings, lambda: api_server(settings))
        make_fleet(settings)
    except (InvalidAuth, Misconfigured) as error:
        raise click.ClickException(str(error)) from None
    if settings.auth == "none" and not is_local(settings.host):
        logger.warning(
            "serving %s:%d without authentication: every client can see every session; "
            "restrict access with --auth token, kubernetes or header",
            settings.host,
            settings.port,
        )
