"""Ray History Server: what a Ray cluster did, after the cluster is gone."""

__version__ = "0.1.0"
