"""What the operator chose about running clusters, and the fleet that is made of it."""

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
    """The running clusters of every API server that was named, or of the one around us."""
    if settings.kube == "off":
        return Fleet()
    try:
        servers = api_servers(settings)
    except Misconfigured as error:
        if settings.kube == "on" or _is_named(settings):
            raise
        logger.warning("running clusters are not shown: %s", error)
        return Fleet()
    if len(servers) > 1 and settings.live_proxy and not settings.use_kubernetes_proxy:
        raise Misconfigured(
            "services of several Kubernetes clusters cannot be told apart by name: add --use-kubernetes-proxy, "
            "or --no-live-proxy"
        )
    namespaces = [name for part in settings.kube_namespaces.split(",") if (name := part.strip())]
    clients = [Kubernetes(s, qps=settings.kube_api_qps, burst=settings.kube_api_burst) for s in servers]
    ways = HeadResolver(
        through_api_server=settings.use_kubernetes_proxy,
        read_secrets=settings.use_auth_token_mode,
        token_file=Path(settings.ray_token_file) if settings.ray_token_file else None,
    )
    return Fleet(
        [Discovery(client, namespaces) for client in clients],
        HeadClient(ways) if settings.live_proxy and clients else None,
    )


def api_servers(settings: LiveSettings) -> list[Access]:
    """The API servers that were named, the one of the cluster we run in, or kubectl's; none where none is wanted."""
    if settings.kubeconfigs:
        return [_from_file(named.strip(), settings.kube_context) for named in settings.kubeconfigs.split(",")]
    if is_in_cluster() and not settings.kube_context:
        return [in_cluster()]
    if settings.kube == "on" or settings.kube_context or settings.use_kubernetes_proxy:
        return [from_kubeconfig(default_kubeconfigs(), settings.kube_context or None)]
    return []


def api_server(settings: LiveSettings) -> Access:
    """The one that is asked about people: the first named, the one around us, else kubectl's."""
    return next(iter(api_servers(settings)), None) or from_kubeconfig(default_kubeconfigs())


def _is_named(settings: LiveSettings) -> bool:
    return bool(settings.kubeconfigs or settings.kube_context)


def _from_file(named: str, context: str) -> Access:
    """`FILE` or `FILE#CONTEXT`."""
    file, _, chosen = named.partition("#")
    return from_kubeconfig([Path(file).expanduser()], chosen or context or None)
