"""The settings of `ray-history serve`, each declared once: flag, variable, default and help."""

from __future__ import annotations

from dataclasses import dataclass

from ray_history.archive.settings import StorageOptions
from ray_history.index.settings import IndexSettings
from ray_history.log_setup import LogSettings
from ray_history.setting import setting


@dataclass(frozen=True)
class WebSettings:
    """Where the server listens, and what it shows."""

    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8080, "Port to listen on.", minimum=1, maximum=65535)
    base_path: str = setting("", "URL path prefix, for serving behind a reverse proxy.", metavar="PATH")
    tls_cert: str | None = setting(None, "TLS certificate file; enables HTTPS.", is_file=True)
    tls_key: str | None = setting(None, "Private key of the TLS certificate.", is_file=True)
    workers: int = setting(1, "Number of server processes; they share the cache.", minimum=1, maximum=64)
    request_timeout: float = setting(
        30.0, "How long a client may take to send a request.", minimum=1, maximum=3600, metavar="SECONDS"
    )
    connections_per_address: int = setting(
        512,
        "Maximum number of connections from one address, per process. Connections on which no request is being "
        "answered make room for new ones.",
        minimum=1,
        metavar="NUMBER",
    )
    dashboard_dir: str | None = setting(
        None,
        "A Ray Dashboard build, or a directory with one build per Ray version, in addition to the build of the "
        "installed `ray`.",
        metavar="DIR",
    )
    show_secrets: bool = setting(False, "Show values of environment variables and of settings that look like secrets.")
    open_sessions: int = setting(
        32,
        "Maximum number of open sessions per process.",
        flags=("--open-sessions", "--session-cache-size"),
        minimum=1,
    )
    prebuild: int = setting(
        100,
        "Number of newest sessions to rebuild ahead of time, while the server is idle; 0 disables it.",
        former=("--index-ahead", "RAY_HISTORY_INDEX_AHEAD"),
        minimum=0,
        metavar="NUMBER",
    )
    query_memory: int = setting(512, "Memory limit for the queries on one session.", minimum=128, metavar="MIB")
    query_timeout: float = setting(
        300.0,
        "Time limit for the queries of one request, without the time that it waits.",
        minimum=0,
        above_minimum=True,
        metavar="SECONDS",
    )
    answer_rows: int = setting(10_000_000, "Maximum number of rows in an answer.", minimum=1, metavar="NUMBER")
    answer_size: int = setting(8192, "Maximum size of an answer, before compression.", minimum=1, metavar="MIB")


@dataclass(frozen=True)
class AuthSettings:
    """Who may see which sessions."""

    auth: str | None = setting(
        None,
        "Authentication mode; required unless --host is a loopback address.",
        choices=("none", "token", "kubernetes", "header"),
    )
    auth_file: str | None = setting(
        None,
        "Access rules for --auth token and --auth header; see docs/security.md.",
        flags=("--auth-tokens-file", "--auth-rules-file"),
        metavar="FILE",
    )
    auth_header: str = setting(
        "X-Forwarded-User", "Request header in which a trusted proxy passes the user name.", metavar="NAME"
    )
    auth_groups_header: str = setting(
        "X-Forwarded-Groups", "Request header with the user's groups, separated by commas.", metavar="NAME"
    )
    auth_trusted_peers: str = setting(
        "",
        "Proxies whose headers are trusted, such as 10.0.0.0/8,192.0.2.7. If empty, X-Forwarded-For and "
        "X-Forwarded-Proto are trusted from this machine only.",
        metavar="NETWORKS",
    )
    auth_audience: str = setting("", "Accepted token audiences, separated by commas.", metavar="NAMES")
    auth_access: str = setting(
        "get rayclusters.ray.io", "Kubernetes permission that a user needs to see a session.", metavar="ACCESS"
    )
    auth_scope: str = setting(
        "namespace",
        "Check permissions per namespace, or also per cluster.",
        choices=("namespace", "cluster"),
    )
    auth_cache: float = setting(
        60.0,
        "How long to cache Kubernetes' decisions; denials for at most 10 seconds.",
        minimum=0,
        maximum=3600,
        metavar="SECONDS",
    )
    allowed_host: str = setting(
        "",
        "Host names besides localhost, separated by commas, by which a server without authentication on a loopback "
        "address may be called; * for any.",
        metavar="NAMES",
    )


@dataclass(frozen=True)
class LiveSettings:
    """Running clusters: where to find them, and how to reach their heads."""

    kube: str = setting(
        "auto",
        "Show running clusters: auto (in a pod, or if a kubeconfig is given), on, or off.",
        choices=("auto", "on", "off"),
    )
    kubeconfigs: str = setting("", "Kubeconfig files of the API servers to watch, as FILE[#CONTEXT],…", metavar="FILES")
    kube_context: str = setting("", "Kubeconfig context, if not the current one.", metavar="NAME")
    kube_namespaces: str = setting(
        "", "Namespaces to search for running clusters, such as team-a,team-b; all if empty.", metavar="NAMES"
    )
    kube_api_qps: float = setting(
        100.0,
        "Maximum requests per second to each API server, both to find clusters and to authenticate.",
        minimum=0,
        above_minimum=True,
    )
    kube_api_burst: int = setting(200, "Maximum burst of requests to each API server.", minimum=1)
    live_proxy: bool = setting(
        True, "Forward requests for running clusters to their heads; if disabled, they are shown from the archive."
    )
    use_kubernetes_proxy: bool = setting(
        False, "Reach the heads through the Kubernetes API server.", takes_boolean=True
    )
    use_auth_token_mode: bool = setting(
        False, "Read the authentication token of a running cluster from its Secret.", takes_boolean=True
    )
    ray_token_file: str | None = setting(
        None,
        "Token file for running clusters with Kubernetes token authentication; the token is sent to their heads.",
        metavar="FILE",
    )


@dataclass(frozen=True)
class ServerSettings(LogSettings, IndexSettings, LiveSettings, AuthSettings, WebSettings, StorageOptions):
    """All settings of the server."""
