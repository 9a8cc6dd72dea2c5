"""The command line, as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ray_history import __version__
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.support.captured import captured, write_archive

COMMAND = str(Path(sys.executable).with_name("ray-history"))


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **env}
    return subprocess.run([COMMAND, *arguments], env=clean, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("archive")
    store = open_store(DirectorySettings(folder))
    write_archive(store, Generation.C, Cluster("team", "trainer", "RayJob", "nightly"))
    for session in ("session_2026-01-01_00-00-00_000001_1", "session_2026-02-01_00-00-00_000001_1"):
        store.put(f"cluster-metadata/raycluster/default_plain/{session}", b"")
    return folder.as_uri()


def test_without_arguments_it_shows_its_help() -> None:
    shown = run()
    assert shown.returncode == 0
    assert "sessions" in shown.stdout


def test_it_tells_its_version() -> None:
    assert run("--version").stdout.strip().endswith(__version__)


def test_help_names_every_option() -> None:
    shown = run("sessions", "--help").stdout
    for option in ("--storage URL", "--runtime-class-name", "--ray-root-dir", "--namespace", "--json", "--unmarked"):
        assert option in shown


def test_sessions_prints_a_table_newest_first(archive: str) -> None:
    shown = run("sessions", "--storage", archive)
    assert shown.returncode == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert lines[0] == ["NAMESPACE", "CLUSTER", "OWNER", "SESSION", "STARTED", "LAYOUT"]
    assert lines[1][:4] == ["team", "trainer", "rayjob/nightly", captured().session]
    assert [line[1] for line in lines[1:]] == ["trainer", "plain", "plain"]


def test_sessions_prints_json_with_upstreams_fields(archive: str) -> None:
    shown = run("sessions", "--storage", archive, "--json", "--namespace", "team")
    (row,) = json.loads(shown.stdout)
    assert row["name"] == "trainer"
    assert row["namespace"] == "team"
    assert row["sessionName"] == captured().session
    assert row["createTime"].endswith("Z")
    assert isinstance(row["createTimeStamp"], int)
    assert (row["ownerKind"], row["ownerName"]) == ("rayjob", "nightly")


def test_details_look_into_the_session(archive: str) -> None:
    shown = run("sessions", "--storage", archive, "--json", "--details", "--cluster", "trainer")
    (row,) = json.loads(shown.stdout)
    assert (row["layout"], row["logFiles"], row["nodes"]) == ("C", len(captured().logs), 2)


def test_filters_and_paging(archive: str) -> None:
    names = [row["sessionName"] for row in json.loads(run("sessions", "--storage", archive, "--json").stdout)]
    page = json.loads(run("sessions", "--storage", archive, "--json", "--offset", "1", "--limit", "1").stdout)
    assert [row["sessionName"] for row in page] == names[1:2]
    latest = run("sessions", "--storage", archive, "--json", "--cluster", "plain", "--session", "latest")
    assert [row["sessionName"] for row in json.loads(latest.stdout)] == ["session_2026-02-01_00-00-00_000001_1"]


def test_upstreams_flags_and_variables_reach_the_same_place(archive: str) -> None:
    folder = archive.removeprefix("file://")
    expected = run("sessions", "--storage", archive, "--json").stdout
    assert run("sessions", "--runtime-class-name=localtest", f"--ray-root-dir={folder}", "--json").stdout == expected
    assert run("sessions", "--json", STORAGE_BACKEND="localtest", STORAGE_ROOT_DIR=folder).stdout == expected
    assert run("sessions", "--json", RAY_HISTORY_STORAGE=archive).stdout == expected


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        (("sessions",), {}, "no storage given: use --storage URL"),
        (("sessions", "--storage", "s4://x"), {}, "is not understood"),
        (("sessions", "--storage", "file:///nonexistent/archive"), {}, "there is no such directory"),
        (("sessions", "--nonsense"), {}, "No such option"),
        (("nonsense",), {}, "No such command"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_says_what(
    arguments: tuple[str, ...], env: dict[str, str], message: str
) -> None:
    shown = run(*arguments, **env)
    assert shown.returncode == 2
    assert message in shown.stderr
    assert "Traceback" not in shown.stderr
    assert shown.stdout == ""


def test_an_unreachable_store_is_exit_code_1_in_one_line_naming_the_setting() -> None:
    shown = run(
        "sessions",
        "--storage",
        "s3://bucket",
        S3_ENDPOINT="http://127.0.0.1:1",
        AWS_ACCESS_KEY_ID="a",
        AWS_SECRET_ACCESS_KEY="b",
    )
    assert shown.returncode == 1
    assert len(shown.stderr.splitlines()) == 1
    assert "check S3_ENDPOINT" in shown.stderr


def test_the_journal_is_one_json_object_a_line_when_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "cluster-metadata" / "raycluster" / "odd" / "odd"
    folder.parent.mkdir(parents=True)
    folder.write_bytes(b"x")
    shown = run("--log-format", "json", "sessions", "--storage", tmp_path.as_uri())
    facts = [json.loads(line) for line in shown.stderr.splitlines()]
    assert facts[0]["level"] == "warning"
    assert "1 objects among the session markers were not understood" in facts[0]["message"]
    quiet = run("--log-level", "error", "sessions", "--storage", tmp_path.as_uri())
    assert quiet.stderr == ""


def test_a_closed_pipe_is_no_traceback(archive: str) -> None:
    script = f"'{COMMAND}' sessions --storage {archive} | head -c 1"
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in shown.stderr
