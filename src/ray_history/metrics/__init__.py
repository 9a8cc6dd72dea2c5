"""Metrics: the samples of a session's Prometheus endpoints.

exposition  the text format of an endpoint
block       what a collector stores of one endpoint every five minutes
series      labels of series, and how selectors find them
promql/     queries
"""
