"""Logs from the archive as a live Ray shows them: by name, task, actor, pid or job; complete, in part, or growing."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import pytest
import requests
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ray_history.archive import layout
from ray_history.archive.catalog import Session
from ray_history.archive.errors import Unreachable
from ray_history.archive.event_files import encode_events
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.session_files import list_session
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.http.responses import ApiError
from ray_history.server.logs import follow as log_following
from ray_history.server.logs import listing as log_listing
from ray_history.server.logs import stream as log_pieces
from ray_history.server.logs.targets import Target
from tests.collector.logs.log_archive import CLUSTER, NODE, SESSION, Node, log_lines
from tests.history.rebuilt import JOB, lifecycle, task_id
from tests.history.rebuilt import WORKER as WORKER_ID
from tests.history.rebuilt import task as defined
from tests.server.serving import served
from tests.support.captured import TARBALL, captured, write_archive
from tests.support.ray_versions import needs_ray
from tests.support.waiting import until

CAPTURED = Cluster("default", "captured")
HEAD = "381dbb332c19a792bbab4412448055d8c7ae4561f44587859ade752b"
SIDE = "e1b0ecf032fb73ce8aaf62b706baec4939d7c4222fc1abf012d26a71"
WORKER = "worker-447ebc40a1bed4ddeae8e429f2886f029e7b76d577f858fd16f548ea-07000000-1081"
WITHOUT_EVENTS = "f" * 56
MIB = 1024 * 1024


# The server


@dataclass(frozen=True)
class Client:
    """Sends requests about one session to a running server."""

    url: str

    def get(self, path: str, method: str = "GET", **query: Any) -> requests.Response:
        return requests.request(method, self.url + path, params=query, timeout=30)

    def file(self, **query: Any) -> requests.Response:
        return self.get("/api/v0/logs/file", **query)

    def names(self, **query: Any) -> dict[str, list[str]]:
        answer = self.get("/api/v0/logs", **query)
        assert answer.status_code == 200, answer.text
        found: dict[str, list[str]] = answer.json()["data"]["result"]
        return found

    def refused(self, path: str = "/api/v0/logs/file", **query: Any) -> tuple[int, str]:
        answer = self.get(path, **query)
        body = answer.json()
        assert (body["result"], body["data"]) == (False, {"result": None})
        return answer.status_code, body["msg"]


@contextmanager
def serving(store: Store, cache_dir: Path) -> Iterator[str]:
    with served(store, cache_dir, most_open=4) as server:
        yield server.url


@contextmanager
def archive(folder: Path, generation: Generation) -> Iterator[Client]:
    """A server on the captured session in an archive of that layout, which ended long ago."""
    store = open_store(DirectorySettings(folder / "archive"))
    store.check(create=True)
    prefix = write_archive(store, generation, CAPTURED)
    add_logs(store, prefix, folder / "archive", flat=generation is Generation.A)
    long_ago = time.time() - 86400
    for file in (folder / "archive").rglob("*"):
        os.utime(file, (long_ago, long_ago))
    with serving(store, folder / "cache") as url:
        yield Client(f"{url}/s/default/captured/{captured().session}")


def add_logs(store: Store, prefix: str, folder: Path, *, flat: bool) -> None:
    """Files that the captured session does not have."""

    def key(node: str, name: str) -> str:
        return layout.join(prefix, "logs", node, name) if flat else layout.log_key(prefix, node, name)

    for node, name, body in EXTRA:
        store.put(key(node, name), body)
    path = folder / key(HEAD, "huge.log")
    with path.open("wb") as file:
        file.truncate(HUGE)
        file.seek(HUGE)
        file.writelines(b"\nline %d" % number for number in range(2000))


HUGE = 300 * MIB
"""Bytes of the first line of a log."""
MOVED = "worker-" + "ab" * 28 + "-0a000000-777.out"
COLOURS = b"".join(
    b"\x1b[3%dmred\x1b[0m and \x1b[%dK plain \x1b[1;31m" % (n % 8, n) + b"x" * (n % 97) for n in range(120_000)
)
EXTRA = (
    (HEAD, f"old/{MOVED}", b"printed before it was moved\n"),
    (HEAD, "raylet.out.1", b"rotated\n"),
    (HEAD, "train/train-controller-only-here.log", b"in a folder\n"),
    (HEAD, "serve/twice.log", b"a"),
    (HEAD, "train/twice.log", b"b"),
    (HEAD, "binary.log", bytes(range(256)) * 40 + b"\r\nno newline at the end"),
    (HEAD, "colours.log", COLOURS),
    (HEAD, "empty.log", b""),
    (HEAD, "job-driver-odd.log", "progress 1\rprogress 2\r\nd\u00f6ne \u2713\n".encode() + b'\xff "quoted" \x07\n'),
    (WITHOUT_EVENTS, "raylet.out", b"nobody told of this node\n"),
)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with archive(tmp_path_factory.mktemp("c"), Generation.C) as client:
        yield client


# Compared with a live Ray


@cache
def truth_texts() -> dict[str, str]:
    found = {}
    with tarfile.open(TARBALL) as tar:
        for member in tar:
            if "/truth/log" in member.name and (file := tar.extractfile(member)):
                found[member.name.rpartition("/")[2]] = file.read().decode()
    return found


def check_truth(client: Client) -> int:
    checked = 0
    for name, entry in captured().truth["INDEX"].items():
        path, query = urlsplit(entry["url"])[2:4]
        asks_logs = path.startswith("/api/v0/logs") or (path.startswith("/api/jobs/") and path.endswith("/logs"))
        if not asks_logs or entry["status"] != 200 or entry.get("growing"):
            continue
        answer = client.get(path, **dict(parse_qsl(query)))
        assert answer.status_code == 200, name
        if path == "/api/v0/logs":
            assert listed(answer.json()) == listed(captured().truth[name]), name
        elif entry["file"].endswith(".json"):
            assert answer.json() == captured().truth[name], name
        else:
            assert answer.content.decode() == truth_texts()[entry["file"]], name
        checked += 1
    return checked


def listed(answer: dict[str, Any]) -> tuple[bool, str, set[tuple[str, str]]]:
    """A listing without files that tests added, and without empty folders, which an archive does not have."""
    added = {"huge.log", "old/", *(name for node, name, _ in EXTRA if node == HEAD)}
    empty = {"nsight/", "profiles/", "rocprof_sys/", "old/"}
    found = {(category, name) for category, names in answer["data"]["result"].items() for name in names}
    return answer["result"], answer["msg"], {(c, name) for c, name in found if name not in added | empty}


def test_every_recorded_log_answer_of_a_live_ray_is_reproduced(asked: Client) -> None:
    assert check_truth(asked) == 85


def test_the_same_from_the_oldest_layout(tmp_path: Path) -> None:
    with archive(tmp_path, Generation.A) as client:
        assert check_truth(client) == 85


def test_headers_are_those_of_a_download(asked: Client) -> None:
    answer = asked.file(node_id=HEAD, filename="raylet.out", lines=10)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == 'attachment; filename="file.txt"'
    head = asked.get("/api/v0/logs/file", "HEAD", node_id=HEAD, filename="raylet.out")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-disposition"] == answer.headers["content-disposition"]
    assert asked.get("/api/v0/logs/file", "HEAD", node_id=HEAD, filename="none").status_code == 404


@pytest.mark.parametrize(
    ("given", "header"),
    [
        ("my_log.txt", 'attachment; filename="my_log.txt"'),
        ('a"; filename="b', "attachment; filename=\"a__ filename=_b\"; filename*=UTF-8''a%22%3B%20filename%3D%22b"),
        ("../../etc/passwd", 'attachment; filename="_.._etc_passwd"'),
        ("x\r\nSet-Cookie: a=b", 'attachment; filename="x_Set-Cookie: a=b"'),
        ("größe.log", "attachment; filename=\"gr__e.log\"; filename*=UTF-8''gr%C3%B6%C3%9Fe.log"),
        ("\0", 'attachment; filename="_"'),
        ("..", 'attachment; filename="file.txt"'),
    ],
)
def test_the_name_of_a_download_is_safe(asked: Client, given: str, header: str) -> None:
    answer = asked.file(node_id=HEAD, filename="raylet.err", download_filename=given)
    assert (answer.status_code, answer.headers["content-disposition"]) == (200, header)
    assert "set-cookie" not in answer.headers


# Selections: KubeRay's tests of its server, with Ray's statuses where they are better

RAYLET = {"node_id": HEAD, "filename": "raylet.out"}


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({**RAYLET, "lines": 100}, 200),
        (RAYLET, 200),
        ({**RAYLET, "lines": -1}, 200),
        ({**RAYLET, "lines": 0}, 200),
        ({**RAYLET, "timeout": 5}, 200),
        ({**RAYLET, "timeout": 30, "interval": 0.5}, 200),
        ({**RAYLET, "attempt_number": 0}, 200),
        ({**RAYLET, "attempt_number": 1}, 200),  # KubeRay reads raylet.out.1; in Ray only tasks have attempts
        ({**RAYLET, "filter_ansi_code": "true"}, 200),
        ({**RAYLET, "filter_ansi_code": "False"}, 200),
        ({**RAYLET, "suffix": "err"}, 200),
        ({**RAYLET, "suffix": "out", "lines": 50, "filter_ansi_code": "true", "download_filename": "a.txt"}, 200),
        ({"node_id": HEAD, "pid": 1081}, 200),
        ({"node_ip": "192.0.2.2", "pid": 1081, "suffix": "err"}, 200),
        ({"submission_id": "fx-core"}, 200),
        ({"filename": "raylet.out"}, 400),
        ({"node_id": HEAD}, 400),
        ({}, 400),
        ({"pid": 1081}, 400),
        ({**RAYLET, "lines": "many"}, 400),
        ({**RAYLET, "timeout": "soon"}, 400),
        ({**RAYLET, "interval": "often"}, 400),
        ({**RAYLET, "attempt_number": "first"}, 400),
        ({**RAYLET, "pid": "init"}, 400),
        ({**RAYLET, "suffix": "log"}, 400),
        ({**RAYLET, "filter_ansi_code": "maybe"}, 400),
        ({"task_id": "unknown"}, 400),
        ({"actor_id": "unknown"}, 400),
        ({"task_id": "0" * 48}, 404),
        ({"actor_id": "0" * 32}, 404),
        ({"submission_id": "unknown"}, 404),
        ({"node_id": HEAD, "filename": "none.log"}, 404),
        ({"node_id": HEAD, "pid": 999999}, 404),
        ({"node_ip": "203.0.113.9", "filename": "raylet.out"}, 404),
        ({"node_id": "0" * 56, "filename": "raylet.out"}, 404),
    ],
)
def test_selections_of_logs(asked: Client, query: dict[str, Any], status: int) -> None:
    answer = asked.file(**query)
    assert answer.status_code == status, answer.text
    assert answer.content
    if status != 200:
        assert answer.json()["msg"]
    streamed = asked.get("/api/v0/logs/stream", **query)
    assert (streamed.status_code, streamed.content) == (status, answer.content)


def test_only_file_and_stream_exist(asked: Client) -> None:
    assert asked.refused("/api/v0/logs/tail", **RAYLET)[0] == 400


PAYLOADS = (
    "../etc/passwd",
    "..",
    "/etc/passwd",
    "../../secret",
    "..%2f..%2fetc",
    "a/../../b",
    "\0",
    "%00",
    "a\\..\\b",
)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_parameter_leads_out_of_the_session(asked: Client, payload: str) -> None:
    def statuses() -> Iterator[int]:
        for name in ("filename", "pid", "suffix", "lines", "attempt_number", "timeout"):
            yield asked.file(**{"node_id": HEAD, "filename": "none", name: payload}).status_code
        for name in ("node_id", "node_ip", "task_id", "actor_id", "submission_id"):
            yield asked.file(**{name: payload, "filename": "raylet.out"}).status_code
        yield asked.get("/api/v0/logs", node_id=payload).status_code
        yield asked.get("/api/v0/logs", node_ip=payload).status_code

    assert set(statuses()) <= {400, 404}
    for path in (f"/api/v0/logs/{quote(payload, safe='')}", f"/api/jobs/{quote(payload, safe='')}/logs"):
        assert asked.get(path, **RAYLET).status_code in (400, 404, 501)
    globbed = asked.get("/api/v0/logs", node_id=HEAD, glob=payload)
    assert globbed.status_code == 400 or globbed.json()["data"]["result"] == {}


@pytest.mark.parametrize("payload", ["../etc/passwd", "..", "/etc/passwd", "../../secret"])
def test_a_path_outside_of_the_log_directory_is_refused(asked: Client, payload: str) -> None:
    assert asked.refused(node_id=HEAD, filename=payload)[0] == 400
    assert asked.refused(node_id="../evil", filename="raylet.out")[0] == 400
    assert asked.refused("/api/v0/logs", node_id=HEAD, glob=payload)[0] == 400


# Listing


def test_globs_are_those_of_the_tests_of_kuberay_with_names_from_the_root_as_in_ray(asked: Client) -> None:
    assert asked.names(node_id=HEAD, glob="events/*RAYLET*") == {"internal": ["events/event_RAYLET.log"]}
    assert asked.names(node_id=HEAD, glob="events/event_JOBS*") == {"internal": ["events/event_JOBS.log"]}
    assert asked.names(node_id=SIDE, glob="raylet*") == {"raylet": ["raylet.err", "raylet.out"]}
    assert asked.names(node_id=HEAD, glob="nothing*") == {}
    assert all(
        "dashboard" in name for names in asked.names(node_id=HEAD, glob="*dashboard*").values() for name in names
    )
    everywhere = [name for names in asked.names(node_id=HEAD, glob="**/*.out").values() for name in names]
    assert all(name.endswith(".out") for name in everywhere)
    assert {"raylet.out", f"old/{MOVED}"} <= set(everywhere)
    assert asked.names(node_id=HEAD) == asked.names(node_id=HEAD, glob="*") == asked.names(node_ip="192.0.2.2", glob="")
    assert {"old/", "events/", "serve/"} <= set(asked.names(node_id=HEAD)["internal"])


def test_a_node_without_events_is_listed_and_read(asked: Client) -> None:
    assert asked.names(node_id=WITHOUT_EVENTS) == {"raylet": ["raylet.out"]}
    assert asked.file(node_id=WITHOUT_EVENTS, filename="raylet.out").content == b"nobody told of this node\n"


def test_a_missing_or_unknown_node_is_refused_with_a_hint(asked: Client) -> None:
    status, message = asked.refused("/api/v0/logs")
    assert (status, "/api/v0/nodes" in message) == (400, True)
    status, message = asked.refused("/api/v0/logs", node_id="0" * 56)
    assert (status, HEAD in message) == (404, True)
    status, message = asked.refused("/api/v0/logs", node_ip="203.0.113.9")
    assert (status, "/api/v0/nodes" in message) == (404, True)


_NAMES = ("a", "b.log", "ab/b.log", "ab/c/b.log", "ab/c/.hidden", "ab/c/d/e", "[x", "ba/a", "A")


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="since 3.13 `**` means files, too")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(st.lists(st.text("ab.*?[]!x/", min_size=1, max_size=5) | st.just("**"), min_size=1, max_size=4).map("/".join))
def test_globs_mean_what_pathlib_means(tmp_path_factory: pytest.TempPathFactory, pattern: str) -> None:
    root = tmp_path_factory.getbasetemp() / "globbed"
    if not root.exists():
        for name in _NAMES:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()
    every = {str(path.relative_to(root)) + ("/" if path.is_dir() else "") for path in root.rglob("*")}
    try:
        expected = {str(path.relative_to(root)) + ("/" if path.is_dir() else "") for path in root.glob(pattern)}
    except (ValueError, NotImplementedError, IndexError, AttributeError):  # refused by pathlib
        expected = set()
    try:
        found = set(filter(log_listing.Glob.parse(pattern).matches, every))
    except ApiError:
        found = set()
    if ".." in pattern.split("/"):
        return
    assert found == expected - {"./"}


def test_a_hostile_glob_costs_little() -> None:
    fits = log_listing.Glob.parse("/".join(["**", "*a*a*a*a*a*a*a*a*b"] * 40)).matches
    for _ in range(100):  # with backtracking, one match would exceed the time limit of the test
        assert not fits("/".join(["a" * 100] * 40))
    fits = log_listing.Glob.parse("**/" * 332 + "x").matches
    for _ in range(10_000):
        assert not fits("a/b/c/y")
    with pytest.raises(ApiError):
        log_listing.Glob.parse("*" * 1001)


# Names


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (MOVED, b"printed before it was moved\n"),
        (f"old/{MOVED}", b"printed before it was moved\n"),
        ("raylet.out.1", b"rotated\n"),
        ("train-controller-only-here.log", b"in a folder\n"),
        ("serve/twice.log", b"a"),
        ("./serve//twice.log", b"a"),
        (f"/tmp/ray/{captured().session}/logs/serve/twice.log", b"a"),  # as in Ray's messages
        ("empty.log", b""),
    ],
)
def test_a_file_is_found_by_any_name_it_had(asked: Client, name: str, content: bytes) -> None:
    answer = asked.file(node_id=HEAD, filename=name)
    assert (answer.status_code, answer.content) == (200, content)


def test_a_name_that_two_files_have_is_not_guessed(asked: Client) -> None:
    status, message = asked.refused(node_id=HEAD, filename="twice.log")
    assert (status, "serve/twice.log, train/twice.log" in message) == (404, True)


def test_a_worker_that_was_moved_is_found_by_its_pid(asked: Client) -> None:
    assert asked.file(node_id=HEAD, pid=777).content == b"printed before it was moved\n"


def test_a_node_is_the_same_by_id_and_by_address(asked: Client) -> None:
    by_address = asked.file(node_ip="127.0.0.2", filename="raylet.out", lines=-1).content
    assert by_address == asked.file(node_id=SIDE, filename="raylet.out", lines=-1).content
    assert by_address == captured().logs[SIDE, "raylet.out"]


def test_a_task_shows_its_own_lines_of_the_workers_file(asked: Client) -> None:
    tasks = asked.get("/api/v0/tasks", detail=1, limit=10000).json()["data"]["result"]["result"]
    ranged = [t for t in tasks if (t["task_log_info"] or {}).get("stdout_end", 0) > 0]
    assert len(ranged) > 50
    for task in ranged:
        info = task["task_log_info"]
        whole = captured().logs[task["node_id"], info["stdout_file"].rpartition("/")[2]]
        answer = asked.file(task_id=task["task_id"], attempt_number=task["attempt_number"], lines=-1)
        mine = whole[info["stdout_start"] : info["stdout_end"]]
        assert answer.content == mine, task["task_id"]
        answer = asked.file(task_id=task["task_id"], attempt_number=task["attempt_number"], lines=1)
        assert answer.content == b"".join(mine.splitlines(keepends=True)[-1:]), task["task_id"]


def test_a_task_whose_worker_died_shows_the_rest_of_the_file(asked: Client) -> None:
    answer = asked.file(task_id="b6ba56732cc79fb2ffffffffffffffffffffffff0b000000", lines=-1)
    name = "worker-01a13f1e54827ffddfe6aa03b26b600d8255be3c9d7284544da9e668-0b000000-2492.out"
    assert answer.content == captured().logs[HEAD, name][42:]


def test_the_lines_of_a_task_that_its_killed_worker_did_not_report_are_found(asked: Client) -> None:
    for task, name in (("4be9119962598d7c", b"ReadRange"), ("6c65f29b1dfce1a0", b"ReadRange->SplitBlocks(2)")):
        answer = asked.file(task_id=f"{task}ffffffffffffffffffffffff07000000", lines=-1)
        assert (answer.status_code, answer.content) == (200, b""), name
    assert (
        captured().logs[HEAD, f"{WORKER}.out"].endswith(b":task_name:ReadRange\n:task_name:ReadRange->SplitBlocks(2)\n")
    )


def test_an_unknown_attempt_is_refused_with_the_known_ones(asked: Client) -> None:
    status, message = asked.refused(task_id="7564f550cd91c929ffffffffffffffffffffffff04000000", attempt_number=7)
    assert (status, "[0, 1]" in message) == (404, True)


def test_an_actor_task_leads_to_its_actor(asked: Client) -> None:
    status, message = asked.refused(task_id="0021899358e75e3cb358a37758e50941b1e99ce708000000")
    assert (status, message) == (400, truth_texts()["logtask_actor_task.txt"])


def test_an_actor_whose_last_worker_left_no_file_shows_an_earlier_life(tmp_path: Path) -> None:
    store = open_store(DirectorySettings(tmp_path / "archive"))
    store.check(create=True)
    prefix = write_archive(store, Generation.C, CAPTURED)
    last = "worker-2a73033729e9acfee484de55cc3c9d3565892941c54287d06bc75278-04000000-300.out"
    store.delete(layout.log_key(prefix, HEAD, last))
    before = [body for (_, name), body in captured().logs.items() if "-04000000-" in name and name.endswith(".out")]
    with serving(store, tmp_path / "cache") as url:
        client = Client(f"{url}/s/default/captured/{captured().session}")
        found = client.file(actor_id="5650c71c8586a608d349c70904000000", lines=-1).content
    assert b":actor_name:Restarter" in found
    assert found in before


# Bytes


def test_bytes_are_sent_unchanged(asked: Client) -> None:
    body = {name: body for _, name, body in EXTRA}["binary.log"]
    assert asked.file(node_id=HEAD, filename="binary.log", lines=-1).content == body
    assert asked.file(node_id=HEAD, filename="binary.log", lines=1).content == b"no newline at the end"
    assert asked.file(node_id=HEAD, filename="binary.log", lines=2).content == body[body.rindex(b"\n", 0, -30) + 1 :]


def test_colours_are_removed_wherever_a_block_ends(asked: Client) -> None:
    plain = log_pieces.ANSI.sub(b"", COLOURS)
    answer = asked.file(node_id=HEAD, filename="colours.log", lines=-1, filter_ansi_code="true")
    assert answer.content == plain
    for size in (1, 2, 3, 5, 7):
        pieces = (COLOURS[start : start + size] for start in range(0, 4000, size))
        assert b"".join(log_pieces.remove_colours(pieces)) == log_pieces.ANSI.sub(
            b"", COLOURS[: -(-4000 // size) * size]
        )


def test_a_huge_log_is_tailed_without_reading_it_and_sent_with_little_memory(asked: Client) -> None:
    before = bytes_read()
    tail = asked.file(node_id=HEAD, filename="huge.log", lines=1000).content
    assert bytes_read() - before < 30 * MIB
    assert (tail[:9], tail.count(b"\n"), tail[-9:]) == (b"line 1000", 999, b"line 1999")
    with (
        memory() as used,
        requests.get(
            f"{asked.url}/api/v0/logs/file?node_id={HEAD}&filename=huge.log&lines=2001",
            stream=True,
            timeout=60,
        ) as answer,
    ):
        received = sum(map(len, answer.iter_content(MIB)))
    assert received == HUGE + len(b"".join(b"\nline %d" % number for number in range(2000)))
    assert max(used) - used[0] < 100 * MIB


def bytes_read() -> int:
    """Bytes that this process, which includes the server, has read so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


@contextmanager
def memory() -> Iterator[list[int]]:
    """Sample the resident bytes of this process, which includes the server, some hundred times a second."""
    used: list[int] = []
    over = threading.Event()

    def measure() -> None:
        while True:
            used.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
            if over.wait(0.005):
                return

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield used
    finally:
        over.set()
        thread.join()


# Jobs


def test_a_jobs_log_is_found_by_both_of_its_ids(asked: Client) -> None:
    by_job = asked.get("/api/jobs/04000000/logs")
    assert by_job.headers["content-type"] == "application/json; charset=utf-8"
    assert by_job.json() == asked.get("/api/jobs/fx-core/logs").json() == captured().truth["job_logs_fx-core"]


def test_a_jobs_log_is_text_whatever_it_printed(asked: Client) -> None:
    assert asked.get("/api/jobs/odd/logs").json() == {
        "logs": 'progress 1\nprogress 2\nd\u00f6ne \u2713\n\ufffd "quoted" \x07\n'
    }


def test_an_unknown_job_gets_rays_message(asked: Client) -> None:
    answer = asked.get("/api/jobs/none/logs")
    assert (answer.status_code, answer.text) == (404, "Job none does not exist")


# Following


@dataclass(eq=False)
class Growing:
    """A session that a real log shipper writes, and a server on it."""

    node: Node
    store: Store
    client: Client

    def told(self, **ledger: Any) -> None:
        say(self.store, **ledger)

    @contextmanager
    def followed(self, **query: Any) -> Iterator[Callable[[int], bytes]]:
        """A function that waits for that number of bytes, and returns fewer only at the end."""
        url = f"{self.client.url}/api/v0/logs/stream?{urlencode({'node_id': NODE, **query})}"
        with requests.get(url, stream=True, timeout=20) as answer:
            assert answer.status_code == 200, answer.text
            yield answer.raw.read


def say(store: Store, **ledger: Any) -> None:
    account = {"node": NODE, "written": time.time(), "alive_until": time.time() + 60, "ended": None, **ledger}
    store.put(layout.ledger_key("", CLUSTER, SESSION, NODE), json.dumps(account).encode())


@pytest.fixture
def growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Growing]:
    monkeypatch.setattr(log_following, "POLL", 0.05)
    monkeypatch.setattr(log_following, "_LEDGER_POLL", 0.1)
    store = open_store(DirectorySettings(tmp_path / "archive"))
    store.check(create=True)
    node = Node(tmp_path / "node", store)
    store.put(layout.marker_key("", CLUSTER, SESSION), b"")
    say(store)
    node.write("raylet.out", b"".join(b"line %d\n" % number for number in range(100)))
    node.write("worker.out", b"")
    node.interval()
    with serving(store, tmp_path / "cache") as url:
        yield Growing(node, store, Client(f"{url}/s/{CLUSTER.namespace}/{CLUSTER.name}/{SESSION}"))
        say(store, ended="graceful")
    node.shipper.close()


def test_empty_directories_are_listed_as_ray_lists_them(growing: Growing, tmp_path: Path) -> None:
    growing.told(logs={"empty_directories": ["nsight/", "serve/replicas/"]})
    with serving(growing.store, tmp_path / "another cache") as url:
        asked = Client(f"{url}/s/{CLUSTER.namespace}/{CLUSTER.name}/{SESSION}")

        def names(glob: str) -> set[str]:
            found = asked.get("/api/v0/logs", node_id=NODE, glob=glob).json()["data"]["result"]
            return {name for names in found.values() for name in names}

        assert {"nsight/", "serve/", "raylet.out"} <= names("*")
        assert names("serve/*") == {"serve/replicas/"}
        page = asked.get("/logs/", node_id=NODE)
        assert ">nsight/</a>" in page.text
        assert ">serve/</a>" in page.text
        assert asked.get("/logs/nsight", node_id=NODE).status_code == 200
        assert asked.get("/logs/nsigh", node_id=NODE).status_code == 404


def test_a_log_is_followed_until_its_collector_has_ended(growing: Growing) -> None:
    node = growing.node
    with growing.followed(filename="raylet.out", lines=2) as read:
        assert read(16) == b"line 98\nline 99\n"
        for number in range(3):
            node.write("raylet.out", b"more %d\n" % number)
            node.interval()
            assert read(7) == b"more %d\n" % number
        node.write("raylet.out", b"last\n")
        node.finish()  # replaces tails by the whole file
        growing.told(ended="graceful")
        assert read(1000) == b"last\n"


def test_a_log_that_ray_itself_writes_is_followed_without_its_secrets(growing: Growing) -> None:
    node, name = growing.node, "runtime_env_agent.log"
    node.write(name, b"begun\n")
    node.interval()
    with growing.followed(filename=name, lines=1) as read:
        assert read(6) == b"begun\n"
        node.write(name, b'made {"env_vars": {"A": "hun')
        node.interval()
        node.write(name, b'ter2"}}\n')
        node.interval()
        assert read(39) == b'made {"env_vars": {"A": "<redacted>"}}\n'
        node.write(name, b"pass=x")
        node.interval()
        growing.told(ended="graceful")
        assert read(100) == b"pass=<redacted>"


def test_a_log_is_followed_through_a_rotation(growing: Growing) -> None:
    node = growing.node
    with growing.followed(filename="raylet.out", lines=1) as read:
        assert read(8) == b"line 99\n"
        node.write("raylet.out", b"just before\n")
        node.rotate("raylet.out")
        node.write("raylet.out", b"the new file\n")
        node.interval()
        assert read(25) == b"just before\nthe new file\n"
        node.write("raylet.out", b"goes on\n")
        node.interval()
        assert read(8) == b"goes on\n"
        growing.told(ended="graceful")
        assert read(10) == b""


def test_a_long_log_is_followed_from_its_beginning_without_a_byte_missing(growing: Growing) -> None:
    node, body = growing.node, log_lines(1, 9 * MIB)
    node.write("flood.log", body[: 5 * MIB])
    node.interval()
    until(lambda: growing.client.get("/api/v0/logs", node_id=NODE, glob="flood.log").json()["data"]["result"])
    with growing.followed(filename="flood.log", lines=-1) as read:
        assert read(MIB) == body[:MIB]
        node.write("flood.log", body[5 * MIB :])
        node.interval()
        growing.told(ended="graceful")
        assert read(20 * MIB) == body[MIB:]


def test_a_follower_ends_when_the_heartbeat_is_overdue(growing: Growing) -> None:
    with growing.followed(filename="raylet.out", lines=1) as read:
        assert read(8) == b"line 99\n"
        growing.told(alive_until=time.time() - 1000)
        assert read(1) == b""


OF_WORKER = f"worker-{WORKER_ID}-{JOB}-77.out"
BEFORE_TASK = b":job_id:02000000\n:task_name:quick\nquick\n:task_name:slow\n"


@contextmanager
def running_task(growing: Growing, *, reports_place: bool) -> Iterator[dict[str, str]]:
    """A task that runs, and the parameters with which its output is followed."""
    log = {"stdoutFile": f"/tmp/ray/{SESSION}/logs/{OF_WORKER}", "stdoutStart": str(len(BEFORE_TASK))}
    events = [
        *(defined(task_id(number), taskName=name) for number, name in enumerate(("quick", "slow"))),
        lifecycle(task_id(0), ("RUNNING", 1), ("FINISHED", 2), node=NODE, worker=WORKER_ID),
        lifecycle(task_id(1), ("RUNNING", 3), node=NODE, worker=WORKER_ID, log=log if reports_place else None),
    ]
    prefix = layout.session_prefix("", CLUSTER, SESSION)
    key = layout.event_file_key(prefix, NODE, None, 1_794_787_200_000_000_000)
    growing.store.put(key, encode_events([json.dumps(event).encode() for event in events]))
    growing.node.write(OF_WORKER, BEFORE_TASK + b"slow begins\n")
    growing.node.interval()
    yield {"task_id": task_id(1), "lines": "-1"}


@pytest.mark.parametrize("reports_place", [True, False], ids=["Ray 2.57 and later", "before"])
def test_a_running_task_is_followed_until_its_worker_begins_the_next(growing: Growing, reports_place: bool) -> None:
    with running_task(growing, reports_place=reports_place) as query:
        with growing.followed(**query) as read:
            assert read(12) == b"slow begins\n"
            growing.node.write(OF_WORKER, b"slow goes on\nand en")
            growing.node.interval()
            assert read(19) == b"slow goes on\nand en"
            growing.node.write(OF_WORKER, b"ds:task_na")
            growing.node.interval()
            assert read(2) == b"ds"
            growing.node.write(OF_WORKER, b"me:next\nof the next\n")
            growing.node.interval()
            assert read(100) == b""
        for path in ("/api/v0/logs/stream", "/api/v0/logs/file"):
            whole = b"slow begins\nslow goes on\nand ends"
            until(lambda path=path, whole=whole: growing.client.get(path, **query).content == whole)


def test_the_number_of_followers_is_limited_and_freed_on_disconnect(
    growing: Growing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_following, "_followers", threading.BoundedSemaphore(1))
    with growing.followed(filename="raylet.out", lines=1) as read:
        read(8)
        status, message = growing.client.refused("/api/v0/logs/stream", node_id=NODE, filename="raylet.out")
        assert (status, "/api/v0/logs/file" in message) == (503, True)
        assert growing.client.file(node_id=NODE, filename="raylet.out", lines=1).content == b"line 99\n"
        assert growing.client.get("/api/v0/logs/stream", "HEAD", node_id=NODE, filename="raylet.out").status_code == 200
    growing.node.write("raylet.out", b"for nobody\n")
    growing.node.interval()

    def there_is_room() -> bool:
        growing.told(ended="graceful")
        return growing.client.get("/api/v0/logs/stream", node_id=NODE, filename="raylet.out").status_code == 200

    until(there_is_room)


def test_a_file_whose_tails_were_replaced_after_the_listing_is_read(growing: Growing) -> None:
    assert growing.client.file(node_id=NODE, filename="raylet.out", lines=1).content == b"line 99\n"
    growing.node.finish()
    assert growing.node.bundles() == []
    assert growing.client.file(node_id=NODE, filename="raylet.out", lines=1).content == b"line 99\n"


def test_following_reads_only_what_is_new(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for number in range(20):
        node.write("raylet.out", b"line %d\n" % number)
        node.interval()
    store: Any = node.store
    files = list_session(store, Session(CLUSTER, SESSION, 0))
    found = files.logs(store)
    follower = log_following.Follower(files, found, Target(found.find(NODE, "raylet.out")), lines=1)
    assert follower.next_piece() == b"line 19\n"
    node.write("raylet.out", b"more\n")
    node.interval()
    node.store.requests.clear()
    assert follower.next_piece() == b"more\n"
    assert node.store.requests == {"list": 3, "get_range": 3}
    assert follower.next_piece() == b""
    assert node.store.requests == {"list": 6, "get_range": 3}
    node.shipper.close()


def test_a_follower_survives_a_short_outage_of_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path)
    node.write("raylet.out", b"one\n")
    node.interval()
    store: Any = node.store
    files = list_session(store, Session(CLUSTER, SESSION, 0))
    found = files.logs(store)
    follower = log_following.Follower(files, found, Target(found.find(NODE, "raylet.out")), lines=-1)
    assert follower.next_piece() == b"one\n"
    node.write("raylet.out", b"two\n")
    node.interval()
    for operation in ("list", "get_range"):
        with node.failing(lambda asked, _key, fails=operation: asked == fails):  # type: ignore[misc]
            assert follower.next_piece() == b""
    assert follower.next_piece() == b"two\n"
    node.write("raylet.out", b"last\n")
    node.interval()
    say(node.real_store, ended="graceful")
    monkeypatch.setattr(log_following, "_LEDGER_POLL", 0)
    with node.failing(lambda asked, _key: asked == "list"):
        assert follower.next_piece() == b""
    assert follower.next_piece() == b"last\n"
    assert follower.next_piece() is None
    impatient = log_following.Follower(files, found, Target(found.find(NODE, "raylet.out")), lines=0)
    monkeypatch.setattr(log_following, "_MAX_OUTAGE", 0)
    with node.failing(lambda asked, _key: asked == "list"), pytest.raises(Unreachable):
        impatient.next_piece()
    node.shipper.close()


# Ray's own clients


@pytest.fixture
def ray_address(real_ray: str, asked: Client, monkeypatch: pytest.MonkeyPatch) -> str:
    """Ray's log clients ask a live GCS only for the address of the dashboard; here it is given."""
    import ray.util.state.api

    monkeypatch.setattr(ray.util.state.api, "ray_address_to_api_server_url", lambda _address: asked.url)
    return asked.url


@needs_ray("2.51", "filter_ansi_code")
def test_rays_python_client_reads_logs(ray_address: str) -> None:
    from ray.util.state import get_log, list_logs

    assert list_logs(ray_address, node_id=SIDE, glob_filter="raylet*") == {"raylet": ["raylet.err", "raylet.out"]}
    text = "".join(get_log(ray_address, node_id=SIDE, filename="raylet.out"))
    assert text.encode() == captured().logs[SIDE, "raylet.out"]
    text = "".join(get_log(ray_address, node_ip="192.0.2.2", pid=1081, tail=2, follow=True, filter_ansi_code=True))
    assert len(text.splitlines()) == 2
    with pytest.raises(Exception, match="list the node's logs"):
        list(get_log(ray_address, node_id=SIDE, filename="none.log"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (f"cluster raylet.out.1 --node-id {HEAD}", "rotated"),
        (f"cluster serve/twice* --node-id {HEAD} --follow", "a"),
        ("cluster raylet* --node-ip 127.0.0.2", "- raylet.err"),
        (f"worker --pid 777 --node-id {HEAD} --tail 1", "printed before it was moved"),
        ("actor --id 161dc17f6b0f936e0b4dede209000000 --node-ip 192.0.2.2 --err", "ServeReplica"),
        ("task --id 011ae9488efe4e25ffffffffffffffffffffffff04000000", "\n"),
        ("job --id fx-core --tail -1", "\n"),
    ],
)
def test_rays_command_line_reads_logs(
    ray_address: str, arguments: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray.util.state.state_cli

    monkeypatch.setattr(ray.util.state.state_cli, "_get_head_node_ip", lambda _address: "192.0.2.2")
    result = CliRunner().invoke(
        ray.util.state.state_cli.logs_state_cli_group, [*arguments.split(), "--address", ray_address]
    )
    assert result.exit_code == 0, result.output
    assert expected in result.output
