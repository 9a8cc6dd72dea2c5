"""Processes that tests start, as the demo does."""

import signal

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
    "hear_interrupts",
    "port_is_open",
]


def hear_interrupts() -> None:
    """For `preexec_fn`: what a script runs in the background does not hear Ctrl-C, nor do its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
