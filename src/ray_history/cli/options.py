"""The options of the commands, as tables: ours, and the flags of KubeRay's binaries."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

import click

from ray_history import __version__
from ray_history.archive.stores.registry import URL_FORMS, URL_SCHEMES

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


DASHBOARD_DIR: Option = click.option(
    "--dashboard-dir",
    envvar="RAY_HISTORY_DASHBOARD_DIR",
    metavar="DIR",
    help="A build of the Ray Dashboard's pages, or a directory with one per Ray version. Besides, those of the "
    "installed `ray` are used. [env: RAY_HISTORY_DASHBOARD_DIR]",
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
    DASHBOARD_DIR,
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


def _storage_url(_context: Any, _option: Any, url: str | None) -> str | None:
    """The URL, if it has a form that a pod can use; its bucket and keys are not looked at."""
    if url and urlsplit(url).scheme not in URL_SCHEMES:
        raise click.BadParameter(f"{url!r} is none of {URL_FORMS}")
    return url


def _pairs(separator: str, form: str) -> Callable[[Any, Any, tuple[str, ...]], tuple[tuple[str, str], ...]]:
    """Texts of the form `first<separator>second`, taken apart."""

    def split(_context: Any, _option: Any, texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        pairs = tuple((first, second) for first, _, second in (text.partition(separator) for text in texts))
        for text in texts:
            if not re.fullmatch(form, text, re.DOTALL):
                raise click.BadParameter(f"{text!r} does not have this form")
        return pairs

    return split


INJECT: tuple[Option, ...] = (
    click.option(
        "-f",
        "--file",
        type=click.File(encoding="utf-8"),
        required=True,
        help="The YAML file; - reads stdin.",
    ),
    click.option(
        "--storage",
        envvar="RAY_HISTORY_STORAGE",
        callback=_storage_url,
        metavar="URL",
        help=f"Where the archive is: {URL_FORMS}. [env: RAY_HISTORY_STORAGE]",
    ),
    click.option(
        "--image",
        default=f"ray-history:{__version__}",
        show_default=True,
        help="The collector's image.",
    ),
    click.option(
        "--env",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_pairs("=", r"[A-Za-z_][A-Za-z0-9_]*=.*"),
        help="A variable for the collector, such as S3_ENDPOINT; can be repeated.",
    ),
    click.option(
        "--env-from",
        multiple=True,
        metavar="KIND/NAME",
        callback=_pairs("/", r"(secret|configmap)/[a-z0-9]([a-z0-9.-]*[a-z0-9])?"),
        help="Variables of a secret/NAME or configmap/NAME, the place for keys; can be repeated.",
    ),
    click.option("--claim", metavar="NAME", help="For file:///dir: the PersistentVolumeClaim to mount there."),
    click.option(
        "--events-port",
        "port",
        type=click.IntRange(1024, 65535),
        default=8084,
        show_default=True,
        help="Port that Ray posts its events to.",
    ),
)


AUTH: tuple[Option, ...] = (
    click.option(
        "--auth",
        envvar="RAY_HISTORY_AUTH",
        type=click.Choice(["none", "token", "kubernetes", "header"]),
        help="How to know who looks; must be chosen unless --host is this machine alone. [env: RAY_HISTORY_AUTH]",
    ),
    click.option(
        "--auth-tokens-file",
        "--auth-rules-file",
        "auth_file",
        envvar="RAY_HISTORY_AUTH_FILE",
        metavar="FILE",
        help="Who may see what, for --auth token and header: see docs/security.md. [env: RAY_HISTORY_AUTH_FILE]",
    ),
    click.option(
        "--auth-header",
        envvar="RAY_HISTORY_AUTH_HEADER",
        default="X-Forwarded-User",
        show_default=True,
        metavar="NAME",
        help="The header in which a trusted proxy tells who it is. [env: RAY_HISTORY_AUTH_HEADER]",
    ),
    click.option(
        "--auth-groups-header",
        envvar="RAY_HISTORY_AUTH_GROUPS_HEADER",
        default="X-Forwarded-Groups",
        show_default=True,
        metavar="NAME",
        help="The header with their groups, separated by commas. [env: RAY_HISTORY_AUTH_GROUPS_HEADER]",
    ),
    click.option(
        "--auth-trusted-peers",
        envvar="RAY_HISTORY_AUTH_TRUSTED_PEERS",
        default="",
        metavar="NETWORKS",
        help="Proxies whose headers are believed, such as 10.0.0.0/8,192.0.2.7; for X-Forwarded-For and -Proto this "
        "machine if none is given. [env: RAY_HISTORY_AUTH_TRUSTED_PEERS]",
    ),
    click.option(
        "--auth-audience",
        envvar="RAY_HISTORY_AUTH_AUDIENCE",
        default="",
        metavar="NAMES",
        help="Tokens of Kubernetes must be meant for one of these. [env: RAY_HISTORY_AUTH_AUDIENCE]",
    ),
    click.option(
        "--auth-access",
        envvar="RAY_HISTORY_AUTH_ACCESS",
        default="get rayclusters.ray.io",
        show_default=True,
        metavar="ACCESS",
        help="What one must be allowed in Kubernetes to see a session. [env: RAY_HISTORY_AUTH_ACCESS]",
    ),
    click.option(
        "--auth-scope",
        envvar="RAY_HISTORY_AUTH_SCOPE",
        type=click.Choice(["namespace", "cluster"]),
        default="namespace",
        show_default=True,
        help="Ask Kubernetes about namespaces only, or also about each cluster. [env: RAY_HISTORY_AUTH_SCOPE]",
    ),
    click.option(
        "--auth-cache",
        envvar="RAY_HISTORY_AUTH_CACHE",
        type=click.FloatRange(0, 3600),
        default=60,
        show_default=True,
        metavar="SECONDS",
        help="How long answers of Kubernetes count; refusals 10 seconds at most. [env: RAY_HISTORY_AUTH_CACHE]",
    ),
)


_SWITCH: dict[str, Any] = {"is_flag": False, "flag_value": "true", "type": click.BOOL, "metavar": "[BOOLEAN]"}
"""`--x` alone, or `--x=false`, as in Go."""
KUBE: tuple[Option, ...] = (
    click.option(
        "--kube",
        envvar="RAY_HISTORY_KUBE",
        type=click.Choice(["auto", "on", "off"]),
        default="auto",
        show_default=True,
        help="Show running clusters: if this is a pod or a kubeconfig is named; always; never. [env: RAY_HISTORY_KUBE]",
    ),
    click.option(
        "--kubeconfigs",
        envvar="RAY_HISTORY_KUBECONFIGS",
        default="",
        metavar="FILES",
        help="Kubeconfigs of the API servers to ask, as FILE[#CONTEXT],… [env: RAY_HISTORY_KUBECONFIGS]",
    ),
    click.option(
        "--kube-context",
        envvar="RAY_HISTORY_KUBE_CONTEXT",
        default="",
        metavar="NAME",
        help="The context of a kubeconfig, if not its current one. [env: RAY_HISTORY_KUBE_CONTEXT]",
    ),
    click.option(
        "--kube-namespaces",
        envvar="RAY_HISTORY_KUBE_NAMESPACES",
        default="",
        metavar="NAMES",
        help="Look for running clusters in these namespaces only, such as team-a,team-b. "
        "[env: RAY_HISTORY_KUBE_NAMESPACES]",
    ),
    click.option(
        "--kube-api-qps",
        envvar="RAY_HISTORY_KUBE_API_QPS",
        type=click.FloatRange(0, min_open=True),
        default=100,
        show_default=True,
        help="Requests to an API server per second. [env: RAY_HISTORY_KUBE_API_QPS]",
    ),
    click.option(
        "--kube-api-burst",
        envvar="RAY_HISTORY_KUBE_API_BURST",
        type=click.IntRange(min=1),
        default=200,
        show_default=True,
        help="How many may follow each other at once. [env: RAY_HISTORY_KUBE_API_BURST]",
    ),
    click.option(
        "--live-proxy/--no-live-proxy",
        envvar="RAY_HISTORY_LIVE_PROXY",
        default=True,
        show_default=True,
        help="Ask the heads of running clusters; without, they too are shown from the archive. "
        "[env: RAY_HISTORY_LIVE_PROXY]",
    ),
    click.option(
        "--use-kubernetes-proxy",
        envvar="RAY_HISTORY_USE_KUBERNETES_PROXY",
        default=False,
        help="Reach the heads through the API server. [env: RAY_HISTORY_USE_KUBERNETES_PROXY]",
        **_SWITCH,
    ),
    click.option(
        "--use-auth-token-mode",
        envvar="RAY_HISTORY_USE_AUTH_TOKEN_MODE",
        default=False,
        help="Read the token of a running cluster that asks for one from its Secret. "
        "[env: RAY_HISTORY_USE_AUTH_TOKEN_MODE]",
        **_SWITCH,
    ),
    click.option(
        "--ray-token-file",
        envvar="RAY_HISTORY_RAY_TOKEN_FILE",
        metavar="FILE",
        help="A token for running clusters that ask for one of Kubernetes; their heads see it. "
        "[env: RAY_HISTORY_RAY_TOKEN_FILE]",
    ),
)


WITHOUT_EFFECT = {
    "session_process_timeout": "opening a session goes on until it is done, and shows its progress",
    "session_cache_max_memory": "sessions are kept on disk; see --cache-size",
    "session_cache_ttl": "open sessions are compared with the archive; the least recently used is closed",
}
"""Flags of KubeRay's history server that are taken so that its command line keeps working."""
UPSTREAM: tuple[Option, ...] = tuple(
    click.option("--" + name.replace("_", "-"), hidden=True) for name in WITHOUT_EFFECT
)
