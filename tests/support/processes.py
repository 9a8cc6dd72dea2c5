"""Processes that tests start, as the demo does."""

from ray_history.demo.processes import (
    PartUnavailable,
    Process,
    ProcessFailed,
    Ready,
    free_port,
    free_ports,
    port_is_open,
)

__all__ = [
    "PartUnavailable",
    "Process",
    "ProcessFailed",
    "Ready",
    "free_port",
    "free_ports",
    "port_is_open",
]
