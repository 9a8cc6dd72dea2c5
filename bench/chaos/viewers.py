"""Ask the history server while everything fails, and judge its answers.

An answer is wrong if it claims what is not so: a task that nobody sent, a name that the task does not have, a log line
that nobody wrote, "not found" for what it had shown before, or a mistake of the server (500). That it cannot answer now
(503, 504, a lost connection while it is killed) is not wrong, nor is a part of a session that still runs.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Any

from .events import task_id
from .life import NAMESPACE, Life
from .log_files import invented_lines
from .machine import Answer

UNABLE = {0, 429, 502, 503, 504}
"""No connection, or an error of the archive that is named as such."""
LIMIT = 10_000


def path_of(life: Life, session: str) -> str:
    return f"/s/{NAMESPACE}/{life.cluster}/{session}"


def rows_of(answer: Answer) -> list[dict[str, Any]]:
    return list(json.loads(answer.body)["data"]["result"]["result"])


def wrong_tasks(rows: list[dict[str, Any]], sent: set[str]) -> list[str]:
    """Rows of tasks that nobody sent, or with names that they do not have."""
    numbers = {int(each.partition("-")[0]) for each in sent}
    names = {task_id(number).hex(): f"task-{number}" for number in numbers}
    found = []
    for row in rows:
        name = names.get(row["task_id"])
        if name is None:
            found.append(f"task {row['task_id']} was never sent")
        elif row["name"] not in (name, "", None):
            found.append(f"{name} is called {row['name']}")
    return found


class Viewers(threading.Thread):
    """Somebody who looks at a session while it lives."""

    def __init__(self, life: Life) -> None:
        super().__init__(daemon=True)
        self._life = life
        self._ending = threading.Event()
        self.statuses: Counter[int] = Counter()
        self.wrong: list[str] = []
        self._seen: set[str] = set()
        """Addresses that were answered with content."""

    def run(self) -> None:
        while not self._ending.wait(0.2):
            session = self._life.sessions[0]
            self._look_at_tasks(path_of(self._life, session), session)
            self._look_at_log(path_of(self._life, session))
            self._ask("/", Accept="text/html")

    def stop(self) -> None:
        self._ending.set()
        self.join(180)

    def _ask(self, path: str, **headers: str) -> Answer | None:
        """The answer if it has content."""
        answer = self._life.machine.server.get(path, **headers)
        self.statuses[answer.status] += 1
        if answer.status == 200:
            self._seen.add(path)
            return answer
        if answer.status not in UNABLE and (answer.status != 404 or path in self._seen):
            self.wrong.append(f"{answer.status} for {path}: {answer.body[:300]!r}")
        return None

    def _look_at_tasks(self, base: str, session: str) -> None:
        answer = self._ask(f"{base}/api/v0/tasks?detail=1&limit={LIMIT}")
        if answer is not None:
            self.wrong += wrong_tasks(rows_of(answer), self._life.sent(session))

    def _look_at_log(self, base: str) -> None:
        answer = self._ask(f"{base}/api/v0/logs/file?node_id={self._life.node}&filename=durable-1.out&lines=-1")
        if answer is not None:
            for each in invented_lines(_whole_lines(answer.body), self._life.logs.written):
                self.wrong.append(f"a line of durable-1.out was never written: {each!r}")


def _whole_lines(body: bytes) -> bytes:
    """Without an unfinished last line."""
    return body[: body.rfind(b"\n") + 1]
