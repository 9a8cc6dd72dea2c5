"""Names that become parts of object keys, and the ids in them.

A name from outside (an event's session, a cluster flag, a job id) becomes part of a key only as a `Component`, which is
the only such check.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from ray_history.moments import is_moment

MAX_COMPONENT = 255
"""Longest file name on local file systems; well within the 1,024 bytes of an S3 key."""

_COMPONENT = re.compile(r"[A-Za-z0-9._-]+")
_HEX = re.compile(r"[0-9a-fA-F]+")
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_SESSION_TIME = re.compile(r"session_(\d{4}-\d\d-\d\d)_(\d\d-\d\d-\d\d)_\d{6}(?:[._-][A-Za-z0-9._-]*)?", re.ASCII)


class InvalidName(ValueError):
    """A name that must not become part of an object key."""


class Component(str):
    """A path component that is safe in every store: `[A-Za-z0-9._-]`, at most 255 bytes, not `.` or `..`."""

    __slots__ = ()

    def __new__(cls, text: str) -> Component:
        if not _COMPONENT.fullmatch(text) or text in (".", "..") or len(text) > MAX_COMPONENT:
            shown = text if len(text) <= 60 else text[:57] + "..."
            raise InvalidName(f"not a safe name: {shown!r} (letters, digits, '.', '_' and '-' only, at most 255)")
        return super().__new__(cls, text)


def dns_name(text: str, what: str) -> Component:
    """`text` as the name of a Kubernetes object (DNS-1123 subdomain).

    Such a name has no `_`, so that `namespace_cluster` in marker keys is unambiguous.
    """
    text = text.strip()
    if not text or len(text) > 253 or not all(_DNS_LABEL.fullmatch(label) for label in text.split(".")):
        raise InvalidName(
            f"{what} {text!r} is not a valid name: use lower-case letters, digits, '-' and '.', "
            "starting and ending with a letter or digit"
        )
    return Component(text)


@dataclass(frozen=True, slots=True)
class SessionTime:
    """Start of a session, from its name: the head's clock, read as UTC."""

    seconds: int

    @property
    def iso(self) -> str:
        return datetime.fromtimestamp(self.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def session_time(session: str) -> SessionTime | None:
    """The start time inside `session_YYYY-MM-DD_HH-MM-SS_ffffff[_pid]`, or None if there is none.

    A time outside of the years 2000 to 2099 is that of a clock that was never set, and counts as none.
    """
    moment = _moment(session)
    return SessionTime(moment) if moment is not None and is_moment(moment) else None


def is_session(name: str) -> bool:
    """Whether this is the name of a session, whatever its head's clock showed."""
    return _moment(name) is not None


def _moment(session: str) -> int | None:
    match = _SESSION_TIME.fullmatch(session)
    if match is None:
        return None
    try:
        moment = datetime.strptime(match[1] + match[2], "%Y-%m-%d%H-%M-%S").replace(tzinfo=UTC)
    except ValueError:  # 2026-02-30 has the right form but is not a date
        return None
    return int(moment.timestamp())


def hex_id(text: str) -> str:
    """An id as lower-case hex, from hex or base64; other text is returned unchanged.

    The Go collector tries the encodings in the same order, so that both write a job's events to the same key: hex,
    unpadded URL-safe base64, padded standard base64.
    """
    if _HEX.fullmatch(text):
        return text.lower()
    compact = text.replace("\r", "").replace("\n", "")
    try:
        if re.fullmatch(r"[A-Za-z0-9_-]+", compact):
            return base64.b64decode(compact + "=" * (-len(compact) % 4), altchars=b"-_", validate=True).hex()
        if re.fullmatch(r"[A-Za-z0-9+/]+={0,2}", compact):
            return base64.b64decode(compact, validate=True).hex()
    except binascii.Error:
        return text
    return text
