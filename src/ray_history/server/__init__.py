"""The history server: the Ray Dashboard and its API for sessions that are gone."""
