"""Records the metrics of the node: what Prometheus would scrape.

targets      which endpoints of the node there are
workers      other nodes that have no collector: the head scrapes them
scrape       one request of an endpoint
files        blocks on the volume until they are in the bucket
recorder     scrapes each endpoint at intervals, and uploads blocks
dashboards   the dashboards that the head writes for Grafana
"""

from .recorder import MetricsRecorder, Schedule

__all__ = ["MetricsRecorder", "Schedule"]
