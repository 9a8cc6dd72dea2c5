"""The server process: settings in, a listening server out."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import uvicorn
from starlette.types import ASGIApp

from ray_history.connections import Connections, LimitedConnection
from ray_history.index.build.confinement import refuse_new_privileges
from ray_history.index.settings import make_indexer
from ray_history.log_setup import configure_logging
from ray_history.server.app import AppConfig, make_app
from ray_history.server.auth import allowed_hosts, make_backend
from ray_history.server.http.budget import Budget
from ray_history.server.http.shutdown import leave
from ray_history.server.live import api_server, make_fleet
from ray_history.server.sessions.manager import Sessions
from ray_history.server.settings import ServerSettings

_SETTINGS = "RAY_HISTORY_SERVE_SETTINGS"
"""Environment variable that passes the settings to the worker processes."""


def application(settings: ServerSettings) -> ASGIApp:
    """The application, on the archive that the settings name."""
    sessions = Sessions(
        make_indexer(settings.resolve(os.environ), settings),
        most_open=settings.open_sessions,
        query_memory=settings.query_memory << 20,
        threads=settings.build_threads,
    )
    downloaded = settings.cache_folder / "dashboards"
    given = (Path(settings.dashboard_dir),) if settings.dashboard_dir else ()
    return make_app(
        sessions,
        AppConfig(
            redact=not settings.show_secrets,
            dashboards=(*given, downloaded),
            base_path=settings.base_path.rstrip("/"),
            secure_cookies=settings.tls_cert is not None,
            hosts=allowed_hosts(settings, settings.host),
            auth=make_backend(settings, lambda: api_server(settings)),
            fleet=make_fleet(settings),
            prebuild=settings.prebuild,
            budget=Budget(settings.answer_rows, settings.answer_size << 20, settings.query_timeout),
            connections=Connections(settings.connections_per_address, settings.request_timeout),
            worker=str(os.getpid()) if settings.workers > 1 else "",
        ),
    )


def serve(settings: ServerSettings) -> None:
    """Serve until SIGTERM or SIGINT; running requests are finished."""
    refuse_new_privileges()
    os.environ[_SETTINGS] = msgspec.json.encode(settings).decode()
    signal.signal(signal.SIGTERM, leave)
    uvicorn.run(
        f"{__name__}:from_environment",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        log_config=None,
        access_log=False,
        http=LimitedConnection,
        server_header=False,
        proxy_headers=False,  # the guard reads them, from trusted peers only
        timeout_keep_alive=30,
        timeout_graceful_shutdown=30,
    )


def from_environment() -> ASGIApp:
    """The application of one worker process."""
    settings = msgspec.json.decode(os.environ[_SETTINGS], type=ServerSettings)
    configure_logging(settings)
    return application(settings)
