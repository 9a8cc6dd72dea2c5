"""Kubernetes: the running Ray clusters, the addresses of their heads, and reviews of tokens and access.

The client is our own: `get`, `list`, `watch`, two reviews and the service proxy over aiohttp. The official client needs
104 MB and 0.7 s to import and is not async; kubernetes-asyncio needs 46 MB and 1.6 s, kr8s 42 MB. lightkube (9 MB) is
small and well maintained, but offers the service proxy only behind a private attribute, adds a second HTTP library, and
has models for objects that are read here as plain JSON.
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
