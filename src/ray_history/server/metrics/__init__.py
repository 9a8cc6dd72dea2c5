"""The recorded metrics of a session: the API of Prometheus, and the dashboards of Grafana."""
