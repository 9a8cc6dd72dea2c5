"""The real S3 server of the demo."""

from ray_history.demo.seaweedfs import SeaweedFS, weed_binary

__all__ = ["SeaweedFS", "weed_binary"]
