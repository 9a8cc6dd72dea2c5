"""Reads events and log files of a session from the bucket, without the product's code.

Formats and keys are those of docs/storage.md and of KubeRay; if the product changes what it writes, this must notice.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import obstore
from obstore.store import S3Store

from ray_history.zstandard import zstd

_BUNDLE = struct.Struct("<8sII")


@dataclass
class Session:
    """What is stored of one session."""

    events: Counter[str] = field(default_factory=Counter)
    """Number of copies by event id."""
    journals: Counter[str] = field(default_factory=Counter)
    """The same, in journals that are left."""
    logs: dict[str, bytes] = field(default_factory=dict)
    """Whole objects by name."""
    tails: dict[str, dict[tuple[int, int], bytes]] = field(default_factory=dict)
    """Log tails that are left: by name, then by generation and offset."""
    ledgers: list[dict[str, object]] = field(default_factory=list)
    quarantined: int = 0

    def content(self, name: str) -> bytes:
        """A log file: its whole object, or its tails."""
        if name in self.logs:
            return self.logs[name]
        pieces = self.tails.get(name, {})
        newest = max((generation for generation, _ in pieces), default=0)
        content = b""
        for (generation, offset), piece in sorted(pieces.items()):
            if generation == newest and offset <= len(content) < offset + len(piece):
                content += piece[len(content) - offset :]
        return content


def read_session(bucket: S3Store, root: str, cluster: str, session: str) -> Session:
    """Everything below the prefixes of the session; `cluster` is `namespace/name`."""
    found = Session()
    for key, body in _objects(bucket, f"{root}/cluster-history/raycluster/{cluster}/{session}"):
        match key.split("/"):
            case [_, "logs", *name]:
                found.logs["/".join(name)] = body
            case [_, "node_events" | "job_events", *_]:
                found.events.update(_event_ids(body))
    for _, body in _objects(bucket, f"{root}/history-journal/raycluster/{cluster}/{session}"):
        found.journals.update(_event_ids(body))
    for _, body in _objects(bucket, f"{root}/history-tails/raycluster/{cluster}/{session}"):
        _read_bundle(body, found.tails)
    for _, body in _objects(bucket, f"{root}/history-ledger/raycluster/{cluster}/{session}"):
        found.ledgers.append(json.loads(body))
    for _, body in _objects(bucket, f"{root}/history-quarantine/raycluster/{cluster}"):
        found.quarantined += gzip.decompress(body).count(b"\n")
    return found


def _objects(bucket: S3Store, prefix: str) -> Iterator[tuple[str, bytes]]:
    prefix = prefix.lstrip("/")
    for page in obstore.list(bucket, prefix):
        for each in page:
            yield each["path"].removeprefix(prefix + "/"), bytes(obstore.get(bucket, each["path"]).bytes())


def _event_ids(body: bytes) -> Iterator[str]:
    for each in gzip.decompress(body).splitlines():
        yield json.loads(each)["eventId"]


def _read_bundle(body: bytes, tails: dict[str, dict[tuple[int, int], bytes]]) -> None:
    _, length, _ = _BUNDLE.unpack_from(body)
    start = _BUNDLE.size + length
    for entry in json.loads(body[_BUNDLE.size : start])["entries"]:
        frame = body[start + entry["position"] : start + entry["position"] + entry["size"]]
        tails.setdefault(entry["path"], {})[entry["generation"], entry["offset"]] = zstd.decompress(frame)
