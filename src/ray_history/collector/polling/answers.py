"""Reads an answer before it is stored: whether it has content, and which jobs and nodes it names.

A msgspec.ValidationError means that the answer is not one of Ray's.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from ray_history.decoding import DECODING_ERRORS

ROWS = ("data", "result", "result")
"""Path of the rows in answers of Ray's state API."""
_WARNING = ("data", "result", "partial_failure_warning")
_ANYTHING = list[Raw] | dict[str, Raw] | str | float | bool | None


class JobRow(msgspec.Struct):
    job_id: str | None = None
    status: str | None = None


class _Version(msgspec.Struct):
    ray_version: str | None = None


class _Node(msgspec.Struct):
    node_id: str
    state: str | None = None


def has_content(body: bytes, path: tuple[str, ...]) -> bool | None:
    """Whether the answer has content at `path`; None if it is not one of Ray's, such as a page of a proxy."""
    try:
        value = _at(body, path)
        return value is not None and bool(msgspec.json.decode(value, type=_ANYTHING))
    except DECODING_ERRORS:
        return None


def job_rows(body: bytes) -> list[JobRow]:
    return msgspec.json.decode(body, type=list[JobRow])


def ray_version(body: bytes) -> tuple[int, ...]:
    """The version of Ray, without its patch number; empty if it is not a release."""
    found = re.match(r"(\d+)\.(\d+)", msgspec.json.decode(body, type=_Version).ray_version or "")
    return tuple(map(int, found.groups())) if found else ()


def alive_nodes(body: bytes) -> list[str]:
    rows = msgspec.json.decode(_at(body, ROWS) or b"[]", type=list[_Node])
    return [row.node_id for row in rows if row.state == "ALIVE" and row.node_id.isalnum()]


def is_partial(body: bytes) -> bool:
    """Whether Ray reports that not all nodes answered."""
    return bytes(_at(body, _WARNING) or b"null") not in (b"null", b'""')


def _at(body: bytes, path: tuple[str, ...]) -> Raw | bytes | None:
    # Level by level, without decoding the other fields: 10,000 workers as Python objects would take 60 MB.
    value: Raw | bytes = body
    for name in path:
        fields = msgspec.json.decode(value, type=dict[str, Raw])
        if bytes(fields.get("result", b"")) == b"false":  # an error of older Ray versions, with status 200
            raise msgspec.ValidationError
        if name not in fields:
            return None
        value = fields[name]
    return value
