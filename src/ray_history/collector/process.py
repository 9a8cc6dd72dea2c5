"""Runs a collector as a process: listens, waits for SIGTERM or SIGINT, ends within the grace period."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping

import uvicorn

from ray_history.archive.stores import Store
from ray_history.connections import LimitedConnection

from .collector import Collector
from .ingest.http import IngestApp
from .node.lookup import NodeLookup
from .polling.dashboard_client import Dashboard, DashboardError, ray_token
from .settings import CollectorSettings, WrongSetting

logger = logging.getLogger(__name__)

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8


def run(settings: CollectorSettings, store: Store, environ: Mapping[str, str]) -> int:
    """Collect until SIGTERM or SIGINT; returns the exit code."""

    def token() -> str | None:
        return ray_token(environ)

    _return_freed_memory()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    listener = _listen(settings) if settings.events else None
    try:
        collector = Collector(settings, store, Dashboard(settings.dashboard, token), NodeLookup(environ, token))
    except DashboardError as error:
        raise WrongSetting(str(error)) from error
    except OSError as error:
        raise WrongSetting(f"cannot use {error.filename} ({error.strerror}): check --event-data-dir") from error
    server = serve(collector.ingest, listener) if listener else None
    collector.start()
    if listener:
        host, port = listener.getsockname()[:2]
        logger.info("receiving events at http://%s:%d/v1/events for %s", host, port, settings.cluster.path)
    stop.wait()
    logger.info("stopping; final uploads within %g s", settings.shutdown_grace)
    began = time.monotonic()
    complete = collector.finish()
    if server is not None:
        server.should_exit = True
    took = time.monotonic() - began
    if complete:
        logger.info("stored everything in %.1f s", took)
    else:
        logger.error("could not store everything in %.1f s; the rest is in %s", took, settings.data_dir)
    return 0


def leave(code: int) -> None:
    """Exit without waiting for threads that are blocked by a store."""
    logging.shutdown()
    os._exit(code)


def _return_freed_memory() -> None:
    """Make glibc return large blocks when they are freed, instead of keeping them in an arena per thread."""
    # Batches have a megabyte and are freed at once: with four senders, this takes 50 MiB instead of 115.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc only
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, 128 * 1024)


def _listen(settings: CollectorSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=128)
    except OSError as error:
        place = f"{settings.host}:{settings.port}"
        raise WrongSetting(
            f"cannot listen on {place} ({error.strerror}): check --events-host and --events-port"
        ) from error


def serve(ingest: IngestApp, listener: socket.socket) -> uvicorn.Server:
    """Start the HTTP server in a thread of its own, so that nothing else delays an acknowledgement."""
    config = uvicorn.Config(
        ingest,
        log_config=None,
        access_log=False,
        lifespan="on",
        http=LimitedConnection,
        loop="uvloop",
        timeout_keep_alive=30,
        server_header=False,
    )
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="ingest", daemon=True).start()
    return server
