"""Finds out where an event belongs: its session, node and job. The rest of the event is not decoded.

Ray writes events in camelCase or, if configured, in snake_case; both are read. Job ids are searched in the same fields
and order as in KubeRay's collector, so that both file the events of a job alike.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from ray_history.archive.names import Component, InvalidName, hex_id
from ray_history.decoding import DECODING_ERRORS

_NODE_TYPES = frozenset({"NODE_LIFECYCLE_EVENT", "NODE_DEFINITION_EVENT"})

_JOB_PAYLOADS = (
    "driver_job_definition_event",
    "driver_job_lifecycle_event",
    "task_definition_event",
    "task_lifecycle_event",
    "task_profile_events",
    "actor_task_definition_event",
    "actor_definition_event",
)


def _decoder(rename: Literal["camel"] | None) -> msgspec.json.Decoder[Any]:
    """A decoder for the needed fields, in one spelling."""
    payload = msgspec.defstruct("Payload", [("job_id", str | int | None, None)], rename=rename, gc=False)
    texts = [(name, str, "") for name in ("event_type", "session_name", "node_id", "timestamp")]
    payloads = [(name, payload | None, None) for name in _JOB_PAYLOADS]
    return msgspec.json.Decoder(msgspec.defstruct("Envelope", [*texts, *payloads], rename=rename, gc=False))


_camel = _decoder("camel")
_snake = _decoder(None)
_batch = msgspec.json.Decoder(list[msgspec.Raw])


class Unreadable(ValueError):
    """A batch or an event without recognisable session."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an event is stored."""

    session: str
    node: str
    """The node that sent it, in hex; empty if the event does not name it."""
    job: str | None


class SessionObserver(Protocol):
    """Knows the sessions of this machine, and is notified about those in events."""

    def own_node(self, session: str) -> str | None:
        """This node's id in the session, for events that do not name one."""

    def session_seen(self, session: str, node: str) -> None:
        """Events of the session arrived from this node."""

    def current_session(self) -> str | None:
        """The current session, for counting what has no recognisable session."""

    def is_local(self, session: str) -> bool:
        """Whether this machine has a directory of the session."""

    def admits(self, session: str) -> bool:
        """Whether events of the session are stored; False if they must be quarantined."""


class Header(NamedTuple):
    """What is read of an event."""

    place: Place
    timestamp: str
    type: str


def node_of(place: Place, sessions: SessionObserver) -> str:
    """The node under which events are stored."""
    return place.node or sessions.own_node(place.session) or "unknown"


def split(body: bytes) -> list[bytes]:
    """The events of a batch as raw bytes, not decoded."""
    try:
        return [bytes(raw) for raw in _batch.decode(body)] if body.strip() not in (b"", b"null") else []
    except DECODING_ERRORS as error:
        raise Unreadable(f"not a JSON array: {error}") from error


def header_of(event: bytes) -> Header:
    """The place, timestamp and type of an event."""
    try:
        envelope = _camel.decode(event)
        if not envelope.session_name:
            envelope = _snake.decode(event)
    except DECODING_ERRORS as error:
        raise Unreadable(f"not an event: {error}") from error
    try:
        session = Component(envelope.session_name)
    except InvalidName as error:
        raise Unreadable(f"no session name: {error}") from error
    return Header(Place(session, _node(envelope.node_id), _job(envelope)), envelope.timestamp, envelope.event_type)


def _node(text: str) -> str:
    """A node id in hex, from hex or from base64 of 28 bytes."""
    if len(text) == 56:
        return text.lower()
    try:
        return base64.b64decode(text, validate=True).hex()
    except (binascii.Error, ValueError):
        return ""


def _job(envelope: Any) -> str | None:
    if envelope.event_type in _NODE_TYPES:
        return None
    for name in _JOB_PAYLOADS:
        payload = getattr(envelope, name)
        if payload is not None and payload.job_id not in (None, ""):
            return hex_id(str(payload.job_id))
    return None
