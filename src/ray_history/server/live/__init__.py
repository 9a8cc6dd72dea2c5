"""Clusters that run: known by Kubernetes, shown by their heads, and from the archive when a head does not answer."""

from ray_history.server.settings import LiveSettings

from .fleet import LIVE, Fleet, Running
from .gateway import LiveGateway
from .heads import HeadClient, HeadUnreachable, Version
from .routes import LivePage, live_routes
from .settings import api_server, make_fleet

__all__ = [
    "LIVE",
    "Fleet",
    "HeadClient",
    "HeadUnreachable",
    "LiveGateway",
    "LivePage",
    "LiveSettings",
    "Running",
    "Version",
    "api_server",
    "live_routes",
    "make_fleet",
]
