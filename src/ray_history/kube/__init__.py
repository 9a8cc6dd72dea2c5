"""Kubernetes: which Ray clusters run, where their heads are, and whom the API server knows. Nothing else.

The client is our own: `get`, `list`, `watch`, two reviews and the service proxy over aiohttp. The official client takes
104 MB and 0.7 s to import, and is not async; kubernetes-asyncio takes 46 MB and 1.6 s; kr8s 42 MB. lightkube (9 MB) is
light and well kept, but has the service proxy only behind a private attribute, brings a second HTTP library beside the
one that proxies, and models objects that are read here as they come.
"""

from .access import Access, in_cluster, is_in_cluster
from .client import Change, HeadEndpoint, Kubernetes, Listing, resource_path
from .discovery import Discovery
from .errors import Denied, Gone, KubeError, Misconfigured, NotFound, Refused, Unreachable
from .head_resolver import HeadResolver, HeadUnavailable
from .kubeconfig import default_kubeconfigs, from_kubeconfig
from .ray_clusters import RayCluster
from .reviews import Attributes, TokenReview, User

__all__ = [
    "Access",
    "Attributes",
    "Change",
    "Denied",
    "Discovery",
    "Gone",
    "HeadEndpoint",
    "HeadResolver",
    "HeadUnavailable",
    "KubeError",
    "Kubernetes",
    "Listing",
    "Misconfigured",
    "NotFound",
    "RayCluster",
    "Refused",
    "TokenReview",
    "Unreachable",
    "User",
    "default_kubeconfigs",
    "from_kubeconfig",
    "in_cluster",
    "is_in_cluster",
    "resource_path",
]
