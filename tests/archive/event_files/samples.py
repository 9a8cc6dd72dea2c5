"""Events as Ray sends them, and files made of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from ray_history.archive.event_files import (
    Limits,
    Problem,
    encode_events,
    read_events,
)

SESSION = "session_2026-11-15_20-00-55_739110_9771"


MIB = 1024 * 1024


def ray_event(number: int, transitions: int = 4) -> bytes:
    """A task's lifecycle in the shape Ray 2.60 sends it: lists of objects inside, JSON inside strings."""
    moment = f"2026-11-15T20:01:{number % 60:02}.142767996Z"
    states = [{"state": f"STATE_{step}", "timestamp": moment} for step in range(transitions)]
    event = {
        "eventId": f"{number:056x}",
        "sourceType": "CORE_WORKER",
        "eventType": "TASK_LIFECYCLE_EVENT",
        "timestamp": moment,
        "severity": "INFO",
        "sessionName": SESSION,
        "taskLifecycleEvent": {
            "taskId": f"{number:032}",
            "stateTransitions": states,
            "jobId": "AgAAAA==",
            "serializedRuntimeEnv": '{"env_vars": {"FOO": "},{"}}',
            "workerPid": 11670,
        },
        "message": "",
    }
    return json.dumps(event, separators=(",", ":")).encode()


EVENTS = [ray_event(number) for number in range(40)]


def lines(events: list[bytes]) -> bytes:
    return b"".join(event + b"\n" for event in events)


def array(events: list[bytes]) -> bytes:
    return b"[" + b",".join(events) + b"]"


FORMATS: dict[str, Callable[[list[bytes]], bytes]] = {
    "lines": lines,
    "lines without the last line end": lambda events: b"\n".join(events),
    "lines with Windows line ends and a byte order mark": lambda events: (
        b"\xef\xbb\xbf" + b"".join(event + b"\r\n" for event in events)
    ),
    "lines with white space after the last": lambda events: lines(events) + b"\r\n  ",
    "lines with blank ones between": lambda events: b"\n \n" + b"\n\n".join(events) + b"\n\n",
    "array": array,
    "indented array": lambda events: b"\xef\xbb\xbf\n[\n    " + b",\n    ".join(events) + b"\n]\n",
    "an array for each event": lambda events: b"\n".join(array([event]) for event in events),
    "gzip lines": lambda events: gzip.compress(lines(events)),
    "gzip array": lambda events: gzip.compress(array(events)),
    "a gzip member for each line": lambda events: b"".join(gzip.compress(event + b"\n") for event in events),
    "what we write": encode_events,
    "what we write, plain": lambda events: encode_events(events, compress=False),
}


def read(body: bytes, *, step: int = MIB, limits: Limits | None = None) -> tuple[list[bytes], list[Problem]]:
    problems: list[Problem] = []
    chunks = (body[start : start + step] for start in range(0, len(body), step))
    return list(read_events(chunks, file="node-1", problems=problems, limits=limits or Limits())), problems


def kinds(problems: list[Problem]) -> list[str]:
    return [problem.kind for problem in problems]


def is_object(event: bytes) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return isinstance(json.loads(event.decode(), parse_constant=refuse), dict)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(["},{", '"}', "[{", "\\", '{"sessionName": "x"}', "\n", "null"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


objects = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), values, max_size=4)


@st.composite
def stored_events(draw: st.DrawFn) -> list[bytes]:
    """Objects as different writers store them: escaped or not, spaced or not."""
    style: dict[str, Any] = {"ensure_ascii": draw(st.booleans())}
    if draw(st.booleans()):
        style["separators"] = (",", ":")
    some = draw(st.lists(objects.map(lambda content: json.dumps(content, **style).encode()), max_size=8))
    real = draw(st.lists(st.sampled_from(EVENTS[:6]), max_size=4))
    return draw(st.permutations(some + real))


small = st.sampled_from([1, 2, 3, 7, 50, 400, MIB])


small_blocks = st.sampled_from([1, 64, 1000, MIB])
