"""The names of the tables of metrics, for those who need not import NumPy for them."""

METRICS, SERIES, BLOCKS, DASHBOARDS = "metrics", "series", "metric_blocks", "dashboards"
ALL = (METRICS, SERIES, BLOCKS, DASHBOARDS)
