"""What the outside of an event tells about where it belongs: session, node, job. Its inside is not our business.

Ray prints events in camelCase, or in snake_case when told so; both are read. Job ids are looked for where KubeRay's
collector looks, in its order, so that both file a job's events alike.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from ray_history.archive.names import Component, InvalidName, hex_id

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
    """Decodes only what is asked of an envelope, in one spelling of the names."""
    payload = msgspec.defstruct("Payload", [("job_id", str | int | None, None)], rename=rename, gc=False)
    texts = [(name, str, "") for name in ("event_type", "session_name", "node_id", "timestamp")]
    payloads = [(name, payload | None, None) for name in _JOB_PAYLOADS]
    return msgspec.json.Decoder(msgspec.defstruct("Envelope", [*texts, *payloads], rename=rename, gc=False))


_camel = _decoder("camel")
_snake = _decoder(None)
_batch = msgspec.json.Decoder(list[msgspec.Raw])


class Unreadable(ValueError):
    """A batch or an event whose place cannot be told."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an event is filed."""

    session: str
    node: str
    """The node that sent it, in hex; empty when the event does not say."""
    job: str | None


def split(body: bytes) -> list[bytes]:
    """The events of a posted batch as raw bytes; nothing is decoded or encoded again."""
    try:
        return [bytes(raw) for raw in _batch.decode(body)] if body.strip() not in (b"", b"null") else []
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreadable(f"not a JSON array: {error}") from error


def place_of(event: bytes) -> tuple[Place, str]:
    """Where the event belongs, and its timestamp."""
    try:
        envelope = _camel.decode(event)
        if not envelope.session_name:
            envelope = _snake.decode(event)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreadable(f"not an event: {error}") from error
    try:
        session = Component(envelope.session_name)
    except InvalidName as error:
        raise Unreadable(f"no session name: {error}") from error
    return Place(session, _node(envelope.node_id), _job(envelope)), envelope.timestamp


def _node(text: str) -> str:
    """A node id is 28 bytes in base64; hex is taken as it is."""
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
