"""The server's own pages, rendered from templates, with static files and no build step.

`home` is the list of sessions, `session` the page about one session, `bars` the bars above the Ray Dashboard.
"""
