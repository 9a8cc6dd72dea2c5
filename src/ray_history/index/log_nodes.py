"""What a raylet says of its node when it starts, for nodes that neither events nor polled answers report.

`raylet.out` begins with the node's id, address and host, and a dump of its resources and labels, in the same form in
Ray 2.49 to 2.60. A few kilobytes are read. A session can have thousands of nodes: only the newest logs are read, fewer
of them where the dashboard was polled for the nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ray_history.archive.errors import ArchiveError
from ray_history.archive.log_files import LogFile, LogFiles
from ray_history.decoding import DECODING_ERRORS

_NAME = "raylet.out"
_BYTES = 16 << 10
_MAX_NODES, _MAX_POLLED_NODES = 512, 32
_STARTED = re.compile(
    rb"^\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) [^\n]{1,100}: Raylet of id, (?P<node>[0-9a-f]{56}) started\. "
    rb"Raylet consists of node_manager and object_manager\. node_manager address: (?P<ip>\S{1,60}):\d{1,5} "
    rb"object_manager address: \S{1,70} hostname: (?P<hostname>\S{1,253})$",
    re.MULTILINE,
)
_RESOURCES, _AVAILABLE, _LABELS = b'Local resources: {"total":{', b'}, "available": {', b', "labels":{'
_INSTANCES = re.compile(r"\d{1,18}(, \d{1,18}){0,999}")
_UNITS = 10_000
"""A resource is logged in ten thousandths, one number per instance."""


def with_nodes(logs: Iterable[LogFile], *, is_polled: bool) -> Sequence[LogFile]:
    """The log files of a session whose first lines are read."""
    raylets = [log_file for log_file in logs if log_file.name == _NAME]
    raylets.sort(key=lambda log_file: (log_file.modified.timestamp() if log_file.modified else 0.0, log_file.node))
    return raylets[-(_MAX_POLLED_NODES if is_polled else _MAX_NODES) :]


def read_node(logs: LogFiles, log_file: LogFile) -> dict[str, Any] | None:
    """The node that a raylet's log is about, as {started, node_ip, hostname, resources_total, labels}.

    None if the log does not say so, or cannot be read, because a node has other sources too. The time is that of the
    node's zone, as text.
    """
    try:
        return node_in(logs.open(log_file).read(0, _BYTES), log_file.node)
    except ArchiveError:
        return None


def node_in(text: bytes, node_id: str) -> dict[str, Any] | None:
    """The node that these first lines are about, if it is this one."""
    started = _STARTED.search(text)
    if started is None or started["node"].decode() != node_id:
        return None
    names = {"started": "time", "node_ip": "ip", "hostname": "hostname"}
    node: dict[str, Any] = {name: started[group].decode(errors="replace") for name, group in names.items()}
    dump = text.partition(_RESOURCES)[2].partition(b"\n")[0]
    resources, marker, rest = dump.partition(_AVAILABLE)
    if marker:
        # Ray 2.49 writes a second brace, and a comma after the last label.
        node["resources_total"] = _amounts(resources.removesuffix(b"}").decode(errors="replace"))
        node["labels"] = _labels(rest.partition(_LABELS)[2].partition(b"}")[0].removesuffix(b","))
    return node


def _amounts(text: str) -> dict[str, float]:
    """`CPU: [30000], GPU: [10000, 10000]` as amounts; what is damaged is left out."""
    amounts = {}
    for resource in text.removesuffix("]").split("], "):
        name, _, instances = resource.rpartition(": [")
        if name and _INSTANCES.fullmatch(instances):
            amounts[name] = sum(map(int, instances.split(", "))) / _UNITS
    return amounts


def _labels(members: bytes) -> dict[str, str]:
    try:
        return msgspec.json.decode(b"{" + members + b"}", type=dict[str, str])
    except DECODING_ERRORS:
        return {}
