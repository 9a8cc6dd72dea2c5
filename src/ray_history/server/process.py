"""The server process: settings in, a listening server out."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import msgspec
import uvicorn
from starlette.types import ASGIApp

from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import open_store
from ray_history.history.engine import Limits
from ray_history.index.cache import Cache
from ray_history.index.indexer import Indexer
from ray_history.log_setup import configure_logging
from ray_history.server.app import AppConfig, make_app
from ray_history.server.auth import AuthSettings, make_mode
from ray_history.server.http.shutdown import leave
from ray_history.server.live import LiveSettings, api_server, make_fleet
from ray_history.server.sessions.manager import Sessions

_SETTINGS = "RAY_HISTORY_SERVE_SETTINGS"
"""How the processes of one server get their settings from the first."""


@dataclass(frozen=True)
class Settings(AuthSettings, LiveSettings):
    """All that `ray-history serve` can be told."""

    storage: str | None = None
    storage_backend: str = ""
    storage_backend_config_path: str = ""
    storage_root_dir: str = ""
    host: str = "127.0.0.1"
    port: int = 8080
    base_path: str = ""
    tls_cert: str | None = None
    tls_key: str | None = None
    workers: int = 1
    dashboard_dir: str | None = None
    show_secrets: bool = False
    open_sessions: int = 32
    index_ahead: int = 100
    query_memory: int = 512
    cache_dir: str = "~/.cache/ray-history"
    cache_size: int = 10_240
    build_memory: int = 1024
    build_threads: int = 2
    share_index: bool = True
    log_level: str = "info"
    log_format: str = "text"


def application(settings: Settings) -> ASGIApp:
    """The application, on the archive that the settings name."""
    upstream = Upstream(settings.storage_backend, settings.storage_backend_config_path, settings.storage_root_dir)
    store = open_store(resolve(settings.storage, upstream, os.environ))
    cache = Cache(Path(settings.cache_dir).expanduser(), settings.cache_size << 20)
    limits = Limits(settings.build_memory << 20, settings.build_threads)
    indexer = Indexer(store, cache, limits, share=settings.share_index)
    sessions = Sessions(
        indexer,
        most_open=settings.open_sessions,
        query_memory=settings.query_memory << 20,
        threads=settings.build_threads,
    )
    fetched = Path(settings.cache_dir).expanduser() / "dashboards"
    given = (Path(settings.dashboard_dir),) if settings.dashboard_dir else ()
    return make_app(
        sessions,
        AppConfig(
            redact=not settings.show_secrets,
            dashboards=(*given, fetched),
            base_path=settings.base_path.rstrip("/"),
            secure_cookies=settings.tls_cert is not None,
            auth=make_mode(settings, lambda: api_server(settings)),
            fleet=make_fleet(settings),
            index_ahead=settings.index_ahead,
            worker=str(os.getpid()) if settings.workers > 1 else "",
        ),
    )


def serve(settings: Settings) -> None:
    """Listen until told to end; running requests are finished."""
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
        server_header=False,
        proxy_headers=False,  # the guard follows them, from the peers that it trusts
        timeout_keep_alive=30,
        timeout_graceful_shutdown=30,
        h11_max_incomplete_event_size=64 << 10,
    )


def from_environment() -> ASGIApp:
    """The application of one process of the server."""
    settings = msgspec.json.decode(os.environ[_SETTINGS], type=Settings)
    configure_logging(settings.log_level, settings.log_format)
    return application(settings)
