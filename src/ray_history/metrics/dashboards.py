"""The dashboards that Ray's head writes for Grafana, as one stored object: zstd, JSON {file name: dashboard}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ray_history.decoding import DECODING_ERRORS
from ray_history.zstandard import Unpackable, unpacked, zstd

MAX_BYTES = 32 << 20
"""Unpacked. Those of Ray 2.60 have 1.5 MB."""


class InvalidDashboards(ValueError):
    """The bytes are not stored dashboards."""


def pack(files: Mapping[str, bytes]) -> bytes:
    """The object for the contents of the head's files, which must be JSON."""
    return zstd.compress(msgspec.json.encode({name: msgspec.Raw(content) for name, content in files.items()}), 10)


def unpack(data: bytes) -> dict[str, dict[str, Any]]:
    """The dashboards by the name of their file; raises `InvalidDashboards`."""
    try:
        return msgspec.json.decode(unpacked(data, MAX_BYTES), type=dict[str, dict[str, Any]])
    except (Unpackable, *DECODING_ERRORS) as error:
        raise InvalidDashboards(f"they cannot be read: {error}") from error
