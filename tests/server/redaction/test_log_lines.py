"""Secrets in log files that Ray itself writes are redacted wherever they are sent; other files are unchanged."""

from __future__ import annotations

import io
import json
import os
import time
import tracemalloc
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.archive import layout
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.app import AppConfig
from ray_history.server.redaction.log_lines import without_secrets, written_by_ray
from tests.server.serving import Served, served
from tests.support.captured import captured, write_archive

HEAD = "381dbb332c19a792bbab4412448055d8c7ae4561f44587859ade752b"
S = f"/s/default/demo/{captured().session}"
EXPORTED, AGENT = "export_events/event_EXPORT_SUBMISSION_JOB.log", "runtime_env_agent.log"
VALUES = (b"job-level", b"s3cr3t-value")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    store = open_store(DirectorySettings(folder / "archive"))
    store.check(create=True)
    prefix = write_archive(store, Generation.C, Cluster("default", "demo"))
    torn = captured().logs[HEAD, EXPORTED][:-40]
    store.put(layout.log_key(prefix, HEAD, "export_events/event_EXPORT_TORN.log"), torn)
    long_ago = time.time() - 86400
    for file in (folder / "archive").rglob("*"):
        os.utime(file, (long_ago, long_ago))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Served]:
    with served(open_store(DirectorySettings(folder / "archive")), folder / "cache") as server:
        yield server


@pytest.fixture(scope="module")
def open_server(folder: Path) -> Iterator[Served]:
    store = open_store(DirectorySettings(folder / "archive"))
    with served(store, folder / "open", AppConfig(redact=False)) as server:
        yield server


def log(server: Served, name: str, kind: str = "file", **query: object) -> bytes:
    asked = "".join(f"&{key}={value}" for key, value in query.items())
    answer = server.get(f"{S}/api/v0/logs/{kind}?node_id={HEAD}&filename={name}{asked}")
    assert answer.status == 200, answer.body
    return answer.body


def has_values(body: bytes) -> bool:
    return any(value in body for value in VALUES)


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("name", [EXPORTED, EXPORTED.rpartition("/")[2], AGENT, f"./{AGENT}", f"old/{AGENT}"])
def test_values_of_variables_stay_out_of_ray_s_own_files(server: Served, name: str, kind: str) -> None:
    body = log(server, name, kind, lines=-1)
    assert b"<redacted>" in body
    assert b"FOO" in body
    assert not has_values(body)


@pytest.mark.parametrize("name", [EXPORTED, AGENT])
def test_values_of_variables_stay_out_of_the_log_directory(server: Served, name: str) -> None:
    assert server.get(f"{S}/logs/{name}").body == log(server, name, lines=-1)


def test_an_operator_can_show_them(open_server: Served) -> None:
    assert log(open_server, EXPORTED, lines=-1) == captured().logs[HEAD, EXPORTED]
    assert log(open_server, AGENT, lines=-1) == captured().logs[HEAD, AGENT]


def test_only_the_values_in_a_line_change(server: Served, open_server: Served) -> None:
    shown, whole = log(server, EXPORTED, lines=-1).splitlines(), log(open_server, EXPORTED, lines=-1).splitlines()
    assert len(shown) == len(whole)
    for line, original in zip(shown, whole, strict=True):
        told = json.loads(original)
        environment = json.loads(told["event_data"]["runtime_env_json"])
        if "env_vars" not in environment:
            assert line == original
            continue
        environment["env_vars"] = dict.fromkeys(environment["env_vars"], "<redacted>")
        hidden = json.loads(line)
        assert json.loads(hidden["event_data"].pop("runtime_env_json")) == environment
        del told["event_data"]["runtime_env_json"]
        assert hidden == told


@pytest.mark.parametrize("name", [EXPORTED, AGENT])
@pytest.mark.parametrize("lines", [1, 3, 10])
def test_the_last_lines_are_those_of_the_whole_file(server: Served, name: str, lines: int) -> None:
    whole = log(server, name, lines=-1).splitlines(keepends=True)
    assert log(server, name, lines=lines).splitlines(keepends=True) == whole[-lines:]


def test_a_torn_line_is_redacted_completely(server: Served) -> None:
    *_, last = log(server, "export_events/event_EXPORT_TORN.log", lines=-1).splitlines()
    assert last == b"<redacted>"


def test_output_of_programs_is_sent_unchanged(server: Served) -> None:
    name = "job-driver-fx-env.log"
    assert log(server, name, lines=-1) == captured().logs[HEAD, name]


def test_answers_with_and_without_secrets_have_different_tags(server: Served, open_server: Served) -> None:
    url = f"{S}/api/v0/logs/file?node_id={HEAD}&filename={AGENT}"
    hidden, shown = server.get(url), open_server.get(url)
    assert hidden.headers["etag"] != shown.headers["etag"]
    assert server.get(url, {"If-None-Match": hidden.headers["etag"]}).status == 304


def test_values_of_variables_stay_out_of_the_download(server: Served, open_server: Served) -> None:
    for asked, expected in ((server, False), (open_server, True)):
        archive = zipfile.ZipFile(io.BytesIO(asked.get(f"{S}/_download").body))
        for name in (EXPORTED, AGENT):
            assert has_values(archive.read(f"logs/{HEAD}/{name}")) is expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("events/event_GCS.log", True),
        ("export_events/x/../event_EXPORT_TASK_1.log", True),
        ("/tmp/ray/session_latest/logs/export_events/event_EXPORT_ACTOR.log", True),
        ("runtime_env_agent.log.1", True),
        ("runtime_env_setup-01000000.log", True),
        ("worker-1-01000000-7.out", False),
        ("raylet.out", False),
        ("myevents.log", False),
    ],
)
def test_files_that_ray_writes_are_recognized(name: str, expected: bool) -> None:
    assert (written_by_ray(name) is not None) is expected


@given(cuts=st.lists(st.integers(0, 2000), max_size=10), name=st.sampled_from(["events/e.log", AGENT]))
def test_pieces_may_end_anywhere(cuts: list[int], name: str) -> None:
    line = b'{"a": 1, "runtime_env_json": "{\\"env_vars\\": {\\"A\\": \\"job-level\\"}}"}\n'
    body = line + b"\n" + b'{"x": "\xc3\xa9"}\n' * 20 + line.rstrip()
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = [body[start:end] for start, end in pairwise(places)]
    sent = b"".join(without_secrets(name, iter(pieces)))
    assert sent == b"".join(without_secrets(name, iter([body])))
    assert b"job-level" not in sent
    assert sent.count(b"\n") == body.count(b"\n")


def test_an_overlong_line_is_never_held_in_memory() -> None:
    def pieces() -> Iterator[bytes]:
        yield b"first\n"
        for _ in range(64):
            yield b"x" * (1 << 20)
        yield b"\nlast\n"

    tracemalloc.start()
    try:
        sent = b"".join(without_secrets(AGENT, pieces()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sent.splitlines() == [b"first", b"<redacted> (a line of more than 8 MiB)", b"last"]
    assert peak < 32 << 20


def test_a_line_that_is_not_utf_8_is_redacted_too() -> None:
    line = b'{"env_vars": {"KEY": "s3cr3t-value \xff"}}\n'
    assert VALUES[1] not in b"".join(without_secrets(AGENT, iter([line])))
