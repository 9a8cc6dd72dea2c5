"""What is done to a life. Requests to the store, posts of events and log files fail in each of them."""

from __future__ import annotations

from . import caches, crowds, processes, resources
from .scenario import Scenario

SCENARIOS: dict[str, Scenario] = {
    **processes.SCENARIOS,
    **resources.SCENARIOS,
    **caches.SCENARIOS,
    **crowds.SCENARIOS,
}

__all__ = ["SCENARIOS", "Scenario"]
