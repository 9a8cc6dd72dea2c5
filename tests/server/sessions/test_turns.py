"""Large answers take turns; small ones do not wait for them."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.sessions.turns import VIEWER, Turns
from tests.server.serving import served
from tests.server.sessions.test_manager import S
from tests.support.captured import write_archive
from tests.support.waiting import until


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = open_store(DirectorySettings(tmp_path / "archive"))
    write_archive(made, Generation.C, Cluster("default", "demo"))
    return made


def waiting(turns: Turns) -> int:
    return sum(len(queue) for sessions in turns._waiting.values() for queue in sessions.values())


def order_of_turns(requests: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Who gets a turn, one after the other, if they ask for it in this order."""
    turns, served_requests, threads = Turns(1), list[tuple[str, str]](), list[threading.Thread]()

    def take(request: tuple[str, str]) -> None:
        VIEWER.set(request)
        with turns:
            served_requests.append(request)

    with turns:
        for number, request in enumerate(requests, 1):
            threads.append(threading.Thread(target=take, args=[request]))
            threads[-1].start()
            until(lambda number=number: waiting(turns) == number)
    for thread in threads:
        thread.join()
    with turns:  # it is free again
        return served_requests


def test_viewers_take_turns() -> None:
    many, few = ("ada", "a"), ("grace", "a")
    assert order_of_turns([*[many] * 5, few, few]) == [many, few, many, few, many, many, many]


def test_sessions_of_a_viewer_take_turns() -> None:
    one, other, guest = ("ada", "one"), ("ada", "other"), ("grace", "one")
    assert order_of_turns([one, one, one, other, guest]) == [one, guest, other, one, one]


def test_several_have_a_turn_at_once() -> None:
    turns = Turns(3)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(turns)
        waiter = threading.Thread(target=turns.__enter__)
        waiter.start()
        until(lambda: waiting(turns) == 1)
    waiter.join()


def test_small_answers_do_not_wait_for_large_ones(store: Store, tmp_path: Path) -> None:
    with served(store, tmp_path / "cache") as server, ExitStack() as stack:
        (row,) = server.get(f"{S}/api/v0/tasks?limit=1").rows
        turns = server.sessions._turns
        for _ in range(2):
            stack.enter_context(turns)
        lists = [threading.Thread(target=server.get, args=[f"{S}/api/v0/tasks?limit=50&n={n}"]) for n in range(60)]
        for each in lists:
            each.start()
        until(lambda: waiting(turns) == 60)
        filters = f"detail=1&filter_keys=task_id&filter_predicates=%3D&filter_values={row['task_id']}"
        assert [task["task_id"] for task in server.get(f"{S}/api/v0/tasks?{filters}").rows] == [row["task_id"]]
        for path in ("/livez", "/clusters", "/metrics", f"{S}/nodes?view=summary"):
            assert server.get(path).status == 200, path
        assert server.get("/", {"Accept": "text/html"}).status == 200
        stack.close()
        for each in lists:
            each.join()
