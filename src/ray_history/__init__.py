"""Ray History Server: what a Ray cluster did, after the cluster is gone."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_IN_PROCESS = ("init", "load_ipython_extension")


def __getattr__(name: str) -> Any:
    """`ray_history.init()`, loaded when it is used: every process of the collector and the server imports this."""
    if name in _IN_PROCESS:
        return getattr(import_module("ray_history.local.in_process"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
