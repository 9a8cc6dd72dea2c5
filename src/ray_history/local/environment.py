"""The environment of a recorded command."""

from __future__ import annotations

from collections.abc import Mapping

from ray_history.ray_variables import recording_variables

MARK = "RAY_HISTORY_RUN"
"""The variable by which the recorder recognizes processes of its command: each inherits it from its parent."""

EXPORT_ADDRESS = "RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR"


def environment_of_command(port: int, mark: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment with the variables for Ray 2.49 and newer; unknown ones do no harm, nor where no Ray starts.

    What the user has set wins: events that go to another collector are not taken from it.
    """
    return {**recording_variables(port), **environ, MARK: mark}


def mark_in(environ: bytes, mark: str) -> bool:
    """Whether the environment of a process, as in /proc, has this mark."""
    return f"\0{MARK}={mark}\0".encode() in b"\0" + environ + b"\0"


def export_address_in(environ: bytes) -> str:
    """To which address a process of Ray sends its events; empty for none."""
    for entry in environ.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == EXPORT_ADDRESS.encode():
            return value.decode(errors="replace")
    return ""
