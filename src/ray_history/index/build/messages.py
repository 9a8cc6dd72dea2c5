"""Messages between a server and its build processes.

A build process reads foreign bytes: what it sends is decoded into these types only. What it gets is pickled.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from .order import Reason


class Progressed(msgspec.Struct, tag=True):
    """The progress of the build; see `order.Progress`."""

    stage: str
    files: int
    files_total: int
    bytes: int
    bytes_total: int
    events: int


class Built(msgspec.Struct, tag=True):
    """The index is complete. The process takes the next order."""

    manifest: bytes


class NotBuilt(msgspec.Struct, tag=True):
    """The build failed. The process takes the next order."""

    reason: Reason
    text: str


class ArchiveFailed(msgspec.Struct, tag=True):
    """The archive could not be read."""

    name: str
    """The class of the error."""
    text: str


class SystemFailed(msgspec.Struct, tag=True):
    """The local disk could not be written."""

    number: int
    """errno"""
    text: str


class Logged(msgspec.Struct, tag=True):
    """A line for the log."""

    level: int
    name: str
    text: str


Message: TypeAlias = Progressed | Built | NotBuilt | ArchiveFailed | SystemFailed | Logged

encode = msgspec.msgpack.encode
decode = msgspec.msgpack.Decoder(Message).decode
