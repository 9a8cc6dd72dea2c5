"""The collector: runs beside a Ray node and stores its events, its logs and the state of its dashboard.

It receives Ray's exported events into a durable spool and uploads them, uploads log files while they grow, and on the
head polls the dashboard for state that events do not carry. It does not depend on how history is rebuilt or served.
"""
