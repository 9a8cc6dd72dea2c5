"""The dashboards that Ray's head writes for Grafana, as one stored object: zstd, JSON {file name: dashboard}."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

import msgspec

from ray_history.bounds import reason
from ray_history.decoding import DECODING_ERRORS
from ray_history.zstandard import Unpackable, unpacked, zstd

FILE_SUFFIX = "_grafana_dashboard.json"
MAX_BYTES = 8 << 20
"""Of all dashboards, unpacked. Those of Ray 2.60 have 1.5 MB."""
MAX_FILES = 50
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


class InvalidDashboards(ValueError):
    """The bytes are not dashboards."""


class Dashboard(msgspec.Struct, frozen=True):
    """A dashboard as Ray wrote it."""

    name: str
    """The name of its file without `_grafana_dashboard.json`, such as `default` or `serve_deployment`."""
    uid: str
    definition: str
    """JSON."""


class _Identity(msgspec.Struct):
    """The only field that is read here: a whole dashboard as Python values takes ten times its size."""

    uid: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


def pack(files: Mapping[str, bytes]) -> bytes:
    """The object for the contents of the head's files; raises `InvalidDashboards` if one of them is no dashboard."""
    _parsed(files)
    contents = {name: msgspec.Raw(content) for name, content in sorted(files.items())}
    return zstd.compress(msgspec.json.encode(contents), 10)


def unpack(data: bytes) -> list[Dashboard]:
    """The stored dashboards; raises `InvalidDashboards`."""
    try:
        files = msgspec.json.decode(unpacked(data, MAX_BYTES), type=dict[str, msgspec.Raw])
    except (Unpackable, *DECODING_ERRORS) as error:
        raise InvalidDashboards(f"they cannot be read: {error}") from error
    return _parsed({name: bytes(content) for name, content in files.items()})


def _parsed(files: Mapping[str, bytes]) -> list[Dashboard]:
    if len(files) > MAX_FILES:
        raise InvalidDashboards(f"{len(files)} files instead of at most {MAX_FILES}")
    size = sum(map(len, files.values()))
    if size > MAX_BYTES:
        raise InvalidDashboards(f"they have {size} bytes instead of at most {MAX_BYTES}")
    return [_dashboard(file, files[file]) for file in sorted(files)]


def _dashboard(file: str, content: bytes) -> Dashboard:
    name = file.removesuffix(FILE_SUFFIX)
    if name == file or not _NAME.fullmatch(name):
        raise InvalidDashboards(f"{file[:200]!r} is not the name of a dashboard's file")
    try:
        return Dashboard(name, msgspec.json.decode(content, type=_Identity).uid, content.decode())
    except DECODING_ERRORS as error:
        raise InvalidDashboards(f"{file}: {reason(error)}") from error
