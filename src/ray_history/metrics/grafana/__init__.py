"""Grafana's dashboards over the samples of a session: what Ray's head wrote for Grafana, computed by our own PromQL.

dashboard     the panels, rows and variables of a dashboard
times         ranges such as `now-5m`, and the steps of a chart
variables     the values of variables, put into queries
pickers       the values that a variable can have
names         names of series, by the legend of a query
overrides     how single series are drawn
charts        computes a panel
"""
