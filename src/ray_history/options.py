"""The options of the commands, as tables: ours, and the flags of KubeRay's binaries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import click

from .archive.settings import URL_FORMS

Option = Callable[[Any], Any]

STORAGE: tuple[Option, ...] = (
    click.option("--storage", metavar="URL", help=f"Where the archive is: {URL_FORMS}. [env: RAY_HISTORY_STORAGE]"),
    click.option(
        "--storage-backend",
        "--runtime-class-name",
        default="",
        metavar="NAME",
        help="KubeRay's way: s3, gcs, azureblob, aliyunoss or localtest, configured by environment variables. "
        "[env: STORAGE_BACKEND]",
    ),
    click.option(
        "--storage-backend-config-path",
        "--runtime-class-config-path",
        default="",
        metavar="FILE",
        help="KubeRay's JSON file for the backend. [env: STORAGE_BACKEND_CONFIG_PATH]",
    ),
    click.option(
        "--storage-root-dir",
        "--ray-root-dir",
        default="",
        metavar="PREFIX",
        help="Prefix inside the bucket; for localtest the directory itself. [env: STORAGE_ROOT_DIR]",
    ),
)


def with_options(options: Iterable[Option], command: Any) -> Any:
    for option in reversed(tuple(options)):
        command = option(command)
    return command


INDEX: tuple[Option, ...] = (
    click.option(
        "--cache-dir",
        envvar="RAY_HISTORY_CACHE_DIR",
        default="~/.cache/ray-history",
        show_default=True,
        metavar="DIR",
        help="Where rebuilt sessions are kept on this machine. [env: RAY_HISTORY_CACHE_DIR]",
    ),
    click.option(
        "--cache-size",
        envvar="RAY_HISTORY_CACHE_SIZE",
        type=click.IntRange(min=1),
        default=10_240,
        show_default=True,
        metavar="MIB",
        help="How large it may become; the least recently used goes first. [env: RAY_HISTORY_CACHE_SIZE]",
    ),
    click.option(
        "--build-memory",
        envvar="RAY_HISTORY_BUILD_MEMORY",
        type=click.IntRange(min=512),
        default=1024,
        show_default=True,
        metavar="MIB",
        help="Memory for rebuilding, whatever the size of a session. [env: RAY_HISTORY_BUILD_MEMORY]",
    ),
    click.option(
        "--build-threads",
        envvar="RAY_HISTORY_BUILD_THREADS",
        type=click.IntRange(min=1),
        default=len(os.sched_getaffinity(0)),
        show_default="all cores",
        metavar="NUMBER",
        help="Cores for rebuilding. [env: RAY_HISTORY_BUILD_THREADS]",
    ),
    click.option(
        "--share-index/--no-share-index",
        envvar="RAY_HISTORY_SHARE_INDEX",
        default=True,
        show_default=True,
        help="Put rebuilt sessions into the archive for other servers. [env: RAY_HISTORY_SHARE_INDEX]",
    ),
)


SERVE: tuple[Option, ...] = (
    click.option(
        "--host",
        envvar="RAY_HISTORY_HOST",
        default="127.0.0.1",
        show_default=True,
        help="Address to listen on. [env: RAY_HISTORY_HOST]",
    ),
    click.option(
        "--port",
        envvar="RAY_HISTORY_PORT",
        type=click.IntRange(1, 65535),
        default=8080,
        show_default=True,
        help="Port to listen on. [env: RAY_HISTORY_PORT]",
    ),
    click.option(
        "--base-path",
        envvar="RAY_HISTORY_BASE_PATH",
        default="",
        metavar="PATH",
        help="Serve everything below this path, for a proxy in front. [env: RAY_HISTORY_BASE_PATH]",
    ),
    click.option(
        "--tls-cert",
        envvar="RAY_HISTORY_TLS_CERT",
        type=click.Path(exists=True, dir_okay=False),
        help="Certificate file; with it the server speaks HTTPS. [env: RAY_HISTORY_TLS_CERT]",
    ),
    click.option(
        "--tls-key",
        envvar="RAY_HISTORY_TLS_KEY",
        type=click.Path(exists=True, dir_okay=False),
        help="The certificate's key. [env: RAY_HISTORY_TLS_KEY]",
    ),
    click.option(
        "--workers",
        envvar="RAY_HISTORY_WORKERS",
        type=click.IntRange(1, 64),
        default=1,
        show_default=True,
        help="Processes that answer; they share the cache. [env: RAY_HISTORY_WORKERS]",
    ),
    click.option(
        "--dashboard-dir",
        envvar="RAY_HISTORY_DASHBOARD_DIR",
        metavar="DIR",
        help="A build of the Ray Dashboard's pages, or a directory with one per Ray version. Besides, those of the "
        "installed `ray` are used. [env: RAY_HISTORY_DASHBOARD_DIR]",
    ),
    click.option(
        "--show-secrets",
        envvar="RAY_HISTORY_SHOW_SECRETS",
        is_flag=True,
        help="Show values of environment variables and secret-looking settings. [env: RAY_HISTORY_SHOW_SECRETS]",
    ),
    click.option(
        "--open-sessions",
        "--session-cache-size",
        envvar="RAY_HISTORY_OPEN_SESSIONS",
        type=click.IntRange(min=1),
        default=32,
        show_default=True,
        help="Sessions kept open per process. [env: RAY_HISTORY_OPEN_SESSIONS]",
    ),
    click.option(
        "--index-ahead",
        envvar="RAY_HISTORY_INDEX_AHEAD",
        type=click.IntRange(min=0),
        default=100,
        show_default=True,
        metavar="NUMBER",
        help="How many of the newest sessions are rebuilt before anybody asks, while the server is idle; 0 for none. "
        "[env: RAY_HISTORY_INDEX_AHEAD]",
    ),
    click.option(
        "--query-memory",
        envvar="RAY_HISTORY_QUERY_MEMORY",
        type=click.IntRange(min=128),
        default=512,
        show_default=True,
        metavar="MIB",
        help="Memory for the queries on one session. [env: RAY_HISTORY_QUERY_MEMORY]",
    ),
)


_LIVE = "live clusters are not shown yet, finished sessions need no Kubernetes"
WITHOUT_EFFECT = {
    "kubeconfigs": _LIVE,
    "use_kubernetes_proxy": _LIVE,
    "use_auth_token_mode": _LIVE,
    "kube_api_qps": _LIVE,
    "kube_api_burst": _LIVE,
    "session_process_timeout": "opening a session goes on until it is done, and shows its progress",
    "session_cache_max_memory": "sessions are kept on disk; see --cache-size",
    "session_cache_ttl": "open sessions are compared with the archive; the least recently used is closed",
}
"""Flags of KubeRay's history server that are taken so that its command line keeps working."""
_BARE: dict[str, Any] = {"is_flag": False, "flag_value": "true"}
UPSTREAM: tuple[Option, ...] = tuple(
    click.option("--" + name.replace("_", "-"), hidden=True, **(_BARE if name.startswith("use_") else {}))
    for name in WITHOUT_EFFECT
)
