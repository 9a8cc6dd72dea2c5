"""Real, captured Ray sessions, and the archives that KubeRay's collectors would have made of them.

`python -m tests.support.captured DIRECTORY` writes one archive that holds all four layout generations side by side.
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ray_history.archive import layout
from ray_history.archive.event_files import encode_events
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings

_DATA = Path(__file__).parents[1] / "data"
NEWEST = "2.60"
TARBALL = _DATA / f"ray-{NEWEST}.tgz"
_JOB_PAYLOADS = (
    "driverJobDefinitionEvent",
    "driverJobLifecycleEvent",
    "taskDefinitionEvent",
    "taskLifecycleEvent",
    "taskProfileEvents",
    "actorTaskDefinitionEvent",
    "actorDefinitionEvent",
)


@dataclass(frozen=True)
class Capture:
    """The events, logs and answers of one cluster's life."""

    session: str
    events: dict[str, list[bytes]]
    """By node, in the order of their arrival."""
    logs: dict[tuple[str, str], bytes]
    """By node and name."""
    polled: dict[str, bytes]
    truth: dict[str, Any]
    """The last JSON answers of the live dashboard, by the name of their file."""

    @property
    def event_count(self) -> int:
        return sum(map(len, self.events.values()))


@cache
def captured(version: str = NEWEST) -> Capture:
    """The capture of that version of Ray in `tests/data`. Those of old versions have less: the logs of workers only."""
    events: dict[str, list[bytes]] = {}
    logs: dict[tuple[str, str], bytes] = {}
    polled: dict[str, bytes] = {}
    truth: dict[str, Any] = {}
    session = ""
    for name, body in _members(version):
        match name.split("/"):
            case ["META.json"]:
                session = json.loads(body)["session_name"]
            case ["events", file]:
                events[file.partition(".")[0]] = gzip.decompress(body).splitlines()
            case ["logs", node, *rest]:
                logs[node, "/".join(rest)] = body
            case ["polled", file]:
                polled[file.removesuffix(".json")] = body
            case ["truth", file] if file.endswith(".json"):
                truth[file.removesuffix(".json")] = json.loads(body)
    return Capture(session, events, logs, polled, truth)


def _members(version: str) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(_DATA / f"ray-{version}.tgz") as tar:
        for member in tar:
            if member.isfile():
                file = tar.extractfile(member)
                assert file is not None
                yield member.name.removeprefix(f"fixture-{version}/"), file.read()


def write_archive(
    store: Store,
    generation: Generation,
    cluster: Cluster,
    root: str = "",
    version: str = NEWEST,
    *,
    capture: Capture | None = None,
) -> str:
    """Store a capture in the layout of a generation; return the prefix of the session."""
    capture = capture or captured(version)
    flat = generation in (Generation.A, Generation.A_PRIME)
    place = layout.legacy_session_prefix if flat else layout.session_prefix
    prefix = place(root, cluster, capture.session)
    if generation is Generation.A:
        store.put(layout.join(root, layout.METADIR, cluster.legacy_path, capture.session), b"")
    else:
        store.put(layout.marker_key(root, cluster, capture.session), b"")
    for node, events in capture.events.items():
        for job, lines in _by_job(events).items():
            _write_events(store, generation, prefix, node, job, lines)
    for (node, name), body in capture.logs.items():
        store.put(layout.join(prefix, "logs", node, name) if flat else layout.log_key(prefix, node, name), body)
    for name, body in capture.polled.items():
        store.put(layout.join(prefix, "fetched_endpoints", name), body)
    return prefix


def _write_events(
    store: Store, generation: Generation, prefix: str, node: str, job: str | None, lines: list[bytes]
) -> None:
    if generation is Generation.C:
        hexed = base64.b64decode(job).hex() if job else None
        key = layout.event_file_key(prefix, node, hexed, 1_794_787_200_000_000_000 + len(lines))
        store.put(key, encode_events(lines))
        return
    category = f"job_events/{job}" if job else "node_events"
    by_hour: dict[str, list[bytes]] = defaultdict(list)
    for line in lines:
        moment = json.loads(line)["timestamp"]
        by_hour[moment[:10] + "-" + moment[11:13]].append(line)
    for hour, group in by_hour.items():
        body = b"[" + b",".join(group) + b"]"
        folder = layout.join(prefix, node if generation is Generation.B else "", category)
        if generation is Generation.A:
            store.put(f"{folder}/{node}-{hour}", body)
        else:
            store.put(f"{folder}/{node}-{hour}.gz", gzip.compress(body))


def _by_job(events: list[bytes]) -> dict[str | None, list[bytes]]:
    groups: dict[str | None, list[bytes]] = defaultdict(list)
    for line in events:
        event = json.loads(line)
        jobs = [event[payload].get("jobId") for payload in _JOB_PAYLOADS if payload in event]
        groups[jobs[0] if jobs and jobs[0] else None].append(line)
    return groups


def write_every_generation(store: Store) -> dict[Generation, Cluster]:
    """One bucket with every generation, as after years of upgrades."""
    clusters = {
        Generation.A: Cluster("default", "old"),
        Generation.A_PRIME: Cluster("default", "spring"),
        Generation.B: Cluster("team-b", "summer", "RayJob", "nightly"),
        Generation.C: Cluster("team-c", "autumn", "RayService", "chat"),
    }
    for generation, cluster in clusters.items():
        root = layout.KUBERAY_SAMPLE_ROOT if generation is Generation.A else ""
        write_archive(store, generation, cluster, root)
    return clusters


if __name__ == "__main__":
    write_every_generation(open_store(DirectorySettings(Path(sys.argv[1]))))
