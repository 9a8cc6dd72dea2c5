"""The fleet of running clusters that the settings describe."""

from __future__ import annotations

import logging
from pathlib import Path

from ray_history.kube import (
    Access,
    Discovery,
    HeadResolver,
    Kubernetes,
    Misconfigured,
    default_kubeconfigs,
    from_kubeconfig,
    in_cluster,
    is_in_cluster,
)
from ray_history.server.settings import LiveSettings

from .fleet import Fleet
from .heads import HeadClient

logger = logging.getLogger(__name__)


def make_fleet(settings: LiveSettings) -> Fleet:
    """The running clusters of each configured API server, or of the one of this pod's cluster."""
    if settings.kube == "off":
        return Fleet()
    try:
        servers = api_servers(settings)
    except Misconfigured as error:
        if settings.kube == "on" or _is_configured(settings):
            raise
        logger.warning("running clusters are not shown: %s", error)
        return Fleet()
    if len(servers) > 1 and settings.live_proxy and not settings.use_kubernetes_proxy:
        raise Misconfigured(
            "with several Kubernetes clusters, service names are ambiguous: add --use-kubernetes-proxy "
            "or --no-live-proxy"
        )
    namespaces = [name for part in settings.kube_namespaces.split(",") if (name := part.strip())]
    clients = [_client(settings, server) for server in servers]
    resolver = HeadResolver(
        through_api_server=settings.use_kubernetes_proxy,
        read_secrets=settings.use_auth_token_mode,
        token_file=Path(settings.ray_token_file) if settings.ray_token_file else None,
    )
    return Fleet(
        [Discovery(client, namespaces) for client in clients],
        HeadClient(resolver) if settings.live_proxy and clients else None,
    )


def api_servers(settings: LiveSettings) -> list[Access]:
    """The configured API servers, or that of this pod's cluster, or kubectl's if Kubernetes is required."""
    if settings.kubeconfigs:
        return [_from_file(text.strip(), settings.kube_context) for text in settings.kubeconfigs.split(",")]
    if is_in_cluster() and not settings.kube_context:
        return [in_cluster()]
    if settings.kube == "on" or settings.kube_context or settings.use_kubernetes_proxy:
        return [from_kubeconfig(default_kubeconfigs(), settings.kube_context or None)]
    return []


def api_server(settings: LiveSettings) -> Kubernetes:
    """The API server for authentication: the first configured one, that of this pod's cluster, or kubectl's."""
    return _client(settings, next(iter(api_servers(settings)), None) or from_kubeconfig(default_kubeconfigs()))


def _client(settings: LiveSettings, server: Access) -> Kubernetes:
    return Kubernetes(server, qps=settings.kube_api_qps, burst=settings.kube_api_burst)


def _is_configured(settings: LiveSettings) -> bool:
    return bool(settings.kubeconfigs or settings.kube_context)


def _from_file(text: str, default_context: str) -> Access:
    """The API server of `FILE` or `FILE#CONTEXT`."""
    file, _, context = text.partition("#")
    return from_kubeconfig([Path(file).expanduser()], context or default_context or None)
