"""Which Prometheus endpoints a collector scrapes."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from ray_history.collector.node.identity import RayNode, RaySession

AGENT, AUTOSCALER, DASHBOARD = "agent", "autoscaler", "dashboard"
LOOPBACK = "127.0.0.1"
_HEAD_PORTS = {AUTOSCALER: ("AUTOSCALER_METRIC_PORT", 44217), DASHBOARD: ("DASHBOARD_METRIC_PORT", 44227)}
"""Ray's variables and defaults. They are fixed ports: two heads on one machine cannot both have them."""


class _AddressFile(msgspec.Struct):
    node_ip_address: str


_address_file = msgspec.json.Decoder(_AddressFile)


@dataclass(frozen=True, slots=True)
class Target:
    """An endpoint."""

    session: str
    node: str
    kind: str
    """`agent`, `autoscaler` or `dashboard`."""
    port: int
    instance: str
    """`address:port` as other machines see it: the label `instance`."""
    host: str = LOOPBACK
    """Where it is scraped."""

    @property
    def is_local(self) -> bool:
        """Whether it is an endpoint of this node."""
        return self.host == LOOPBACK


def targets(node: RayNode, *, head: bool, environ: Mapping[str, str] = os.environ) -> list[Target]:
    """The endpoints of the current session, as far as they are known by now."""
    session = node.current()
    node_id = node.node_id(session) if session else None
    if session is None or node_id is None:
        return []
    ports = {AGENT: node.metrics_port(session, node_id)}
    if head:
        ports |= {kind: _port(environ.get(variable), default) for kind, (variable, default) in _HEAD_PORTS.items()}
    address = _address(session)
    return [
        Target(session.name, node_id, kind, port, f"{address}:{port}")
        for kind, port in ports.items()
        if port is not None
    ]


def _port(text: str | None, default: int) -> int | None:
    if not text:
        return default
    return int(text) if text.isdecimal() and 0 < int(text) < 65_536 else None


def _address(session: RaySession) -> str:
    """The node's address, as Ray wrote it for the drivers of this machine; otherwise this machine's."""
    with suppress(OSError, msgspec.DecodeError):
        return _address_file.decode((session.directory / "node_ip_address.json").read_bytes()).node_ip_address
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
