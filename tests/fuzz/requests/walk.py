"""A walk through the API: from the list of sessions to their tasks, actors, jobs and logs, by any viewer."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, multiple, rule, run_state_machine_as_test

from tests.fuzz.campaign import Outcome
from tests.fuzz.requests.place import MISSING, SEEN_BY, SESSION, Place, place, without_name

REQUESTS = "requests"
"""The name under which walks are started."""

_MOST = 6
"""Rows of a listing from which the walk goes on."""
_REFUSED = (401, 403, 429)
"""Without a token, with a wrong one, and after many wrong ones."""
_OUTSIDERS = ("bob", "wrong", "nobody")
"""Those who may not see `default/demo`."""


class Walk(RuleBasedStateMachine):
    """Every answer is described; what one answer names is found by the next; what is hidden is like what is missing."""

    place: Place
    requests = 0
    """Of all walks."""

    sessions = Bundle("sessions")
    tasks, actors, jobs, nodes, files = (Bundle(name) for name in ("tasks", "actors", "jobs", "nodes", "files"))

    def __init__(self) -> None:
        super().__init__()
        self._cases = self.place.cases()

    def _get(self, path: str, viewer: str, **parameters: Any) -> Any:
        type(self).requests += 1
        return self.place.get(path, viewer, **parameters)

    @rule(target=sessions, viewer=st.sampled_from(sorted(SEEN_BY)))
    def list_sessions(self, viewer: str) -> Any:
        answer = self._get("/clusters", viewer)
        assert answer.status == 200
        found = [(entry["namespace"], entry["name"], entry["sessionName"]) for entry in answer.json]
        assert {namespace for namespace, _, _ in found} == {SEEN_BY[viewer]}
        return multiple(*((viewer, f"/s/{namespace}/{name}/{session}") for namespace, name, session in found))

    @rule(viewer=st.sampled_from(("wrong", "nobody")))
    def list_nothing(self, viewer: str) -> None:
        answer = self._get("/clusters", viewer)
        assert answer.status in _REFUSED, answer
        assert SESSION.encode() not in answer.body

    @rule(target=tasks, session=sessions, detail=st.booleans(), offset=st.integers(0, 30))
    def list_tasks(self, session: Any, detail: bool, offset: int) -> Any:
        rows = self._rows(session, "tasks", detail=int(detail), offset=offset)
        return multiple(*((*session, row["task_id"], row["attempt_number"], row["state"]) for row in rows))

    @rule(target=actors, session=sessions)
    def list_actors(self, session: Any) -> Any:
        return multiple(*((*session, row["actor_id"], row["state"]) for row in self._rows(session, "actors")))

    @rule(target=nodes, session=sessions)
    def list_nodes(self, session: Any) -> Any:
        return multiple(*((*session, row["node_id"]) for row in self._rows(session, "nodes")))

    @rule(target=jobs, session=sessions)
    def list_jobs(self, session: Any) -> Any:
        viewer, path = session
        found = self._get(f"{path}/api/jobs/", viewer).json
        return multiple(*((*session, job["submission_id"] or job["job_id"], job["status"]) for job in found))

    @rule(target=files, node=nodes)
    def list_logs(self, node: Any) -> Any:
        viewer, path, node_id = node
        answer = self._get(f"{path}/api/v0/logs", viewer, node_id=node_id)
        assert answer.status in (200, 404)  # not every node has logs
        if answer.status == 404:
            return multiple()
        names = [name for found in answer.json["data"]["result"].values() for name in found if not name.endswith("/")]
        return multiple(*((*node, name) for name in names[:_MOST]))

    @rule(task=tasks)
    def one_task(self, task: Any) -> None:
        viewer, path, task_id, attempt, state = task
        keys = {"filter_keys": "task_id", "filter_predicates": "=", "filter_values": task_id}
        rows = self._get(f"{path}/api/v0/tasks", viewer, **keys).rows
        assert [row["state"] for row in rows if row["attempt_number"] == attempt] == [state]

    @rule(actor=actors)
    def one_actor(self, actor: Any) -> None:
        viewer, path, actor_id, state = actor
        answer = self._get(f"{path}/logical/actors/{actor_id}", viewer)
        assert answer.json["data"]["detail"]["state"] == state

    @rule(job=jobs)
    def one_job(self, job: Any) -> None:
        viewer, path, name, status = job
        assert self._get(f"{path}/api/jobs/{name}", viewer).json["status"] == status

    @rule(file=files, lines=st.integers(-1, 50))
    def one_log(self, file: Any, lines: int) -> None:
        viewer, path, node_id, name = file
        answer = self._get(f"{path}/api/v0/logs/file", viewer, node_id=node_id, filename=name, lines=lines)
        assert answer.status == 200
        assert lines < 0 or answer.body.count(b"\n") <= lines

    @rule(found=st.one_of(tasks, actors, jobs, nodes, sessions), outsider=st.sampled_from(_OUTSIDERS))
    def hidden_from_others(self, found: Any, outsider: str) -> None:
        viewer, path, *_ = found
        if viewer == "ada":
            answer = self._get(f"{path}/api/v0/tasks", outsider)
            assert answer.status in ([404] if outsider == "bob" else _REFUSED)

    @rule(data=st.data(), outsider=st.sampled_from(_OUTSIDERS))
    def any_request(self, data: st.DataObject, outsider: str) -> None:
        """Any request of any route: described for those who may, and like a missing session's for all others."""
        case = data.draw(self._cases)
        type(self).requests += 3
        self.place.check(case, self.place.send(case, "default", "demo", "ada"))
        hidden = without_name(self.place.send(case, "default", "demo", outsider))
        missing = without_name(self.place.send(case, "default", MISSING, outsider))
        if 429 not in (hidden.status, missing.status):
            assert hidden == missing, case.as_curl_command()
        assert 200 <= hidden.status < 500

    def _rows(self, session: tuple[str, str], table: str, **parameters: int) -> list[dict[str, Any]]:
        viewer, path = session
        answer = self._get(f"{path}/api/v0/{table}", viewer, limit=_MOST, **parameters)
        assert answer.status == 200
        assert len(answer.rows) <= _MOST
        return list(answer.rows)


def fuzz_requests(seconds: float) -> Outcome:
    """Go on random walks for a while."""
    with tempfile.TemporaryDirectory(prefix="ray-history-fuzz-") as folder, place(Path(folder)) as found:
        machine = _machine(found)
        try:
            _walk(machine, examples=20, steps=30, seconds=seconds, is_random=True)
        except Exception as error:  # noqa: BLE001 - every exception is a finding
            notes = "\n".join(getattr(error, "__notes__", ()))
            return Outcome(REQUESTS, machine.requests, message=f"{type(error).__name__}: {error}\n{notes}"[:5000])
        return Outcome(REQUESTS, machine.requests)


def walk(found: Place, examples: int) -> int:
    """Go on some walks, the same each time; returns the number of requests. Failures are raised."""
    machine = _machine(found)
    _walk(machine, examples=examples, steps=20)
    return int(machine.requests)


def _machine(found: Place) -> Any:
    return type("WalkHere", (Walk,), {"place": found, "requests": 0})


def _walk(machine: Any, *, examples: int, steps: int, seconds: float = 0, is_random: bool = False) -> None:
    deadline = time.monotonic() + seconds
    options = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=not is_random,
        suppress_health_check=list(HealthCheck),
    )
    while True:
        run_state_machine_as_test(machine, settings=options)
        if time.monotonic() >= deadline:
            return
