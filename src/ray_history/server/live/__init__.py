"""Running clusters: found with Kubernetes, shown by their heads, or from the archive when a head does not answer."""

from ray_history.server.settings import LiveSettings

from .fleet import Fleet
from .gateway import LiveGateway
from .heads import HeadClient, HeadUnreachable, Version
from .routes import LiveDashboard, LivePage
from .running import LIVE, RunningCluster
from .settings import api_server, make_fleet

__all__ = [
    "LIVE",
    "Fleet",
    "HeadClient",
    "HeadUnreachable",
    "LiveDashboard",
    "LiveGateway",
    "LivePage",
    "LiveSettings",
    "RunningCluster",
    "Version",
    "api_server",
    "make_fleet",
]
