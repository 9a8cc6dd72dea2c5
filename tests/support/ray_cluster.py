"""The real Ray of the demo."""

from ray_history.demo.ray_cluster import RayCluster, plain_environment, ray_binary

__all__ = ["RayCluster", "plain_environment", "ray_binary"]
