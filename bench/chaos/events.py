"""Posts events with unique ids, as Ray's agent does, and notes which of them were acknowledged."""

from __future__ import annotations

import base64
import http.client
import json
import random
import socket
import threading
from collections import Counter
from typing import Any

JOB = (1).to_bytes(4, "little")
PARTS = ("TASK_DEFINITION_EVENT", "TASK_LIFECYCLE_EVENT")
"""The two events of each task."""

MOST_CUTS = 6
"""Attempts before a batch that are cut off."""


def task_id(number: int) -> bytes:
    return number.to_bytes(8, "big") + b"\xff" * 12 + JOB


def event_id(number: int, part: int) -> str:
    return f"{number}-{part}"


def event(number: int, part: int, session: str, node: str) -> dict[str, Any]:
    """One of the two events of a task."""
    common = {"taskId": _base64(task_id(number)), "jobId": _base64(JOB), "taskAttempt": 0}
    if part == 0:
        payload = ("taskDefinitionEvent", {**common, "taskName": f"task-{number}", "requiredResources": {"CPU": 1.0}})
    else:
        over = [{"state": "FINISHED", "timestamp": "2026-11-15T20:01:02.231054422Z"}]
        payload = ("taskLifecycleEvent", {**common, "stateTransitions": over})
    return {
        "eventId": event_id(number, part),
        "sourceType": "CORE_WORKER",
        "eventType": PARTS[part],
        "timestamp": "2026-11-15T20:01:02.231054422Z",
        "severity": "INFO",
        "sessionName": session,
        payload[0]: payload[1],
        "nodeId": _base64(bytes.fromhex(node)),
        "message": "",
    }


def _base64(binary: bytes) -> str:
    return base64.b64encode(binary).decode()


class Agent(threading.Thread):
    """Posts one batch at a time until it is acknowledged; some of its requests are cut off, some are sent twice."""

    def __init__(self, port: int, session: str, node: str, *, seed: int, pause: float = 0.03, first: int = 0) -> None:
        """`first` is the number of the first task."""
        super().__init__(daemon=True)
        self.session = session
        self._port, self._node, self._pause, self._number = port, node, pause, first
        self._random = random.Random(seed)
        self._ending = threading.Event()
        self._running = threading.Event()
        self._running.set()
        self.sent: dict[str, set[str]] = {}
        """Event ids by session."""
        self.acknowledged: dict[str, set[str]] = {}
        self.statuses: Counter[int] = Counter()
        self.faults: Counter[str] = Counter()

    def run(self) -> None:
        late: list[tuple[int, int]] = []
        while not self._ending.is_set():
            self._running.wait(1)
            if not self._running.is_set():
                continue
            parts, late = self._next_parts(late)
            session = self.session
            body = json.dumps([event(number, part, session, self._node) for number, part in parts]).encode()
            identities = {event_id(number, part) for number, part in parts}
            self.sent.setdefault(session, set()).update(identities)
            self._injure(body)
            if not self._post_until_acknowledged(body):
                return
            self.acknowledged.setdefault(session, set()).update(identities)
            self._ending.wait(self._pause)

    def _next_parts(self, late: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """What the next batch has; the second events of some tasks come with a later one."""
        chance, parts, delayed = self._random, late, []
        for _ in range(chance.randint(1, 12)):
            self._number += 1
            parts = [*parts, (self._number, 0)]
            (delayed if chance.random() < 0.3 else parts).append((self._number, 1))
        chance.shuffle(parts)
        return parts, delayed

    def _post_until_acknowledged(self, body: bytes) -> bool:
        while not self._post(body):
            if self._ending.wait(0.05):
                return False
        return True

    def _injure(self, body: bytes) -> None:
        """Before the batch is posted: parts of it, and sometimes all of it once more."""
        for _ in range(self._random.randrange(MOST_CUTS)):
            self._cut_off(body[: self._random.randrange(len(body))], len(body))
            self.faults["batch cut off"] += 1
        if self._random.random() < 0.1:
            self._post(body)
            self.faults["batch sent twice"] += 1

    def _cut_off(self, start: bytes, length: int) -> None:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=3) as connection:
                fields = ("Host: x", "Content-Type: application/json", f"Content-Length: {length}", "", "")
                connection.sendall("\r\n".join(("POST /v1/events HTTP/1.1", *fields)).encode() + start)
        except OSError:
            self.statuses[0] += 1

    def _post(self, body: bytes) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=3)
        try:
            connection.request("POST", "/v1/events", body, {"Content-Type": "application/json"})
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException):
            status = 0
        finally:
            connection.close()
        self.statuses[status] += 1
        return 200 <= status < 300

    def hold(self) -> None:
        """Send nothing for a while."""
        self._running.clear()

    def go_on(self) -> None:
        self._running.set()

    def stop(self) -> None:
        self._ending.set()
        self._running.set()
        self.join(30)
