"""PromQL over the samples of a session, evaluated at all steps at once.

errors        what can be wrong with a query
limits        how much a query may read and how long it may take
syntax        parses a query
matchers      which series a selector means, as SQL
samples       reads series and samples from the tables
vector        series with values at each step
windows       functions of ranges: `rate`, `max_over_time`, ...
functions     functions of instant vectors
histograms    `histogram_quantile`
aggregation   `sum by (...)`, `topk`, ...
operators     `+`, `>`, `and`, ...
evaluate      walks through a parsed query

It follows Prometheus 2: a range includes its first moment.
"""
