"""What a Ray node sends to its collector."""

from __future__ import annotations

from contextlib import suppress

from ray_history.archive.names import Component
from ray_history.collector.ingest.envelope import Unreadable, header_of, split
from tests.archive.event_files.samples import array, ray_event
from tests.fuzz.target import target
from tests.support.captured import captured

_FIELDS = (
    *(b'"sessionName"', b'"session_name"', b'"nodeId"', b'"node_id"', b'"jobId"', b'"job_id"', b'"eventType"'),
    *(b'"NODE_LIFECYCLE_EVENT"', b'"taskDefinitionEvent"', b'"AgAAAA=="', b'"02000000"', b"\xff", b"\\ud800"),
)


def captured_events(count: int = 30) -> list[bytes]:
    """Real events, of as many types as possible."""
    by_type: dict[bytes, list[bytes]] = {}
    for events in captured().events.values():
        for event in events:
            by_type.setdefault(event.partition(b'"eventType":"')[2].partition(b'"')[0], []).append(event)
    ordered = [
        event for position in range(5) for events in by_type.values() for event in events[position : position + 1]
    ]
    return [event for event in ordered if len(event) < 3000][:count]


def _batches() -> list[bytes]:
    events = captured_events()
    return [array([event]) for event in events] + [array([ray_event(1), ray_event(2)]), b"null", b"[]"]


@target("event_batches", _batches, tokens=_FIELDS)
def event_batches(data: bytes) -> None:
    """A batch is split into parts of itself; an event has a place whose names are safe; else it is unreadable."""
    try:
        events = split(data)
    except Unreadable:
        return
    position = 0
    for event in events:
        position = data.index(event, position) + len(event)
        with suppress(Unreadable):
            header = header_of(event)
            assert isinstance(header.place.session, Component)
            assert not header.place.node.strip("0123456789abcdef") or len(header.place.node) == 56
    assert split(array(events)) == events
