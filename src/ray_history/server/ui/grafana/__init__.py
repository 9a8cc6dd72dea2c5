"""The Grafana that the Ray Dashboard embeds: whether there is one, and its pages.

health        what the dashboard asks first
page          pages of whole dashboards and of single panels
"""
