"""Compares what went into a life with what came out: by reading the bucket, and by asking the history server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote

from .archive_reader import Session, read_session
from .events import task_id
from .leaks import Usage
from .life import MOST_DESCRIPTORS, MOST_MEMORY, NAMESPACE, Life
from .log_files import invented_lines
from .viewers import LIMIT, path_of, rows_of, wrong_tasks

ANSWER_SECONDS = 60
"""Within which the healed server must give the right answer: a failed build is tried again after a minute."""
FILES_ASKED = 5
"""Log files per session that are asked of the server; all are read from the bucket."""


@dataclass
class Verdict:
    """The counts of one life, or of several."""

    lives: int = 0
    acknowledged: int = 0
    stored: int = 0
    """Of the acknowledged events."""
    damaged: int = 0
    """Acknowledged events that were lost, and reported to be, because a bit of their only copy was flipped."""
    log_bytes: int = 0
    stored_log_bytes: int = 0
    answers: int = 0
    problems: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[str]:
        return [*self.problems, *self.wrong, *self.leaks]

    def add(self, other: Verdict) -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


def judge(life: Life) -> Verdict:
    """Count what is in the bucket, then compare what the server answers."""
    verdict = Verdict(lives=1)
    for session in life.sessions:
        found = read_session(life.machine.bucket, life.machine.root, f"{NAMESPACE}/{life.cluster}", session)
        _judge_events(verdict, life, session, found)
        _judge_logs(verdict, life, session, found)
        _judge_answers(verdict, life, session)
    verdict.leaks += [f"a collector holds {each}" for each in life.usages if _is_much(each)]
    return verdict


def _is_much(found: Usage) -> bool:
    return found.memory > MOST_MEMORY or found.descriptors > MOST_DESCRIPTORS


def _judge_events(verdict: Verdict, life: Life, session: str, found: Session) -> None:
    sent, acknowledged = life.sent(session), life.acknowledged(session)
    stored = found.events.keys() | found.journals.keys()
    lost = acknowledged - stored
    verdict.acknowledged += len(acknowledged)
    verdict.stored += len(acknowledged) - len(lost)
    verdict.damaged += len(lost & life.damaged)
    if lost - life.damaged:
        verdict.problems.append(f"{len(lost - life.damaged)} acknowledged events are lost: {sorted(lost)[:3]}")
    if lost & life.damaged and b"is damaged at byte" not in life.collector.process.log.read_bytes():
        verdict.problems.append(f"{len(lost & life.damaged)} events are lost, and the damage is not reported")
    if stored - sent:
        verdict.problems.append(f"{len(stored - sent)} events were never sent: {sorted(stored - sent)[:3]}")
    if found.quarantined:
        verdict.problems.append(f"{found.quarantined} lines are in quarantine")


def _judge_logs(verdict: Verdict, life: Life, session: str, found: Session) -> None:
    folder = life.logs_of(session)
    names = found.logs.keys() | found.tails.keys()
    for name, content in _files(folder):
        stored = found.content(name)
        if name.startswith("durable"):
            verdict.log_bytes += len(content)
            verdict.stored_log_bytes += len(content) if stored == content else _common_start(stored, content)
        if stored != content:
            where = _common_start(stored, content)
            verdict.problems.append(f"{name}: {len(stored)} of {len(content)} bytes, different from byte {where} on")
    for name in names:
        invented = invented_lines(found.content(name), life.logs.written)
        if invented:
            verdict.problems.append(f"{name} has {len(invented)} lines that were never written: {invented[0]!r}")


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(folder)), path.read_bytes()


def _common_start(one: bytes, other: bytes) -> int:
    if one == other:
        return len(one)
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _judge_answers(verdict: Verdict, life: Life, session: str) -> None:
    sent, acknowledged = life.sent(session), life.acknowledged(session)
    required = {task_id(int(each.partition("-")[0])).hex() for each in acknowledged - life.damaged}
    files = list(_files(life.logs_of(session)))
    files = life.chance.sample(files, min(FILES_ASKED, len(files)))
    deadline = time.monotonic() + ANSWER_SECONDS
    questions: list[Callable[[], str]] = [partial(_tasks_problem, life, session, sent, required)]
    questions += [partial(_file_problem, life, session, name, content) for name, content in files]
    for question in questions:
        verdict.answers += 1
        while (problem := question()) and time.monotonic() < deadline:
            verdict.answers += 1
            time.sleep(1)
        verdict.wrong += [problem] if problem else []


def _file_problem(life: Life, session: str, name: str, content: bytes) -> str:
    query = f"node_id={life.node}&filename={quote(name)}&lines=-1"
    answer = life.machine.server.get(f"{path_of(life, session)}/api/v0/logs/file?{query}")
    if answer.status == 200 and answer.body == content:
        return ""
    found = f"{answer.status}, {len(answer.body)} of {len(content)} bytes"
    return f"{name} of {life.cluster}: {found}: {answer.body[:200]!r}"


def _tasks_problem(life: Life, session: str, sent: set[str], required: set[str]) -> str:
    if not required:
        return ""
    answer = life.machine.server.get(f"{path_of(life, session)}/api/v0/tasks?detail=1&limit={LIMIT}")
    if answer.status != 200:
        return f"tasks of {life.cluster}: {answer.status} {answer.body[:300]!r}"
    rows = rows_of(answer)
    missing = required - {row["task_id"] for row in rows}
    if missing and len(rows) < LIMIT:
        return f"tasks of {life.cluster}: {len(missing)} of {len(required)} are missing: {answer.body[:300]!r}"
    return "; ".join(wrong_tasks(rows, sent)[:3])
