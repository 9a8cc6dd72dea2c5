"""`ray-history sessions`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.cli.installed import COMMAND, run
from tests.support.captured import captured, write_archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("archive")
    store = open_store(DirectorySettings(folder))
    write_archive(store, Generation.C, Cluster("team", "trainer", "RayJob", "nightly"))
    for session in ("session_2026-01-01_00-00-00_000001_1", "session_2026-02-01_00-00-00_000001_1"):
        store.put(f"cluster-metadata/raycluster/default_plain/{session}", b"")
    return folder.as_uri()


def test_the_table_lists_the_newest_first(archive: str) -> None:
    shown = run("sessions", "--storage", archive)
    assert shown.returncode == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert lines[0] == ["NAMESPACE", "CLUSTER", "OWNER", "SESSION", "STARTED", "LAYOUT"]
    assert lines[1][:4] == ["team", "trainer", "rayjob/nightly", captured().session]
    assert [line[1] for line in lines[1:]] == ["trainer", "plain", "plain"]


def test_json_has_the_fields_of_kuberay(archive: str) -> None:
    shown = run("sessions", "--storage", archive, "--json", "--namespace", "team")
    (row,) = json.loads(shown.stdout)
    assert row["name"] == "trainer"
    assert row["namespace"] == "team"
    assert row["sessionName"] == captured().session
    assert row["createTime"].endswith("Z")
    assert isinstance(row["createTimeStamp"], int)
    assert (row["ownerKind"], row["ownerName"]) == ("rayjob", "nightly")


def test_details_describe_the_files_of_a_session(archive: str) -> None:
    shown = run("sessions", "--storage", archive, "--json", "--details", "--cluster", "trainer")
    (row,) = json.loads(shown.stdout)
    assert (row["layout"], row["logFiles"], row["nodes"]) == ("C", len(captured().logs), 2)
    assert (row["recording"], row["recordedShare"]) == ("not counted", None)


def test_details_say_when_nothing_was_recorded(archive: str) -> None:
    shown = run("sessions", "--storage", archive, "--json", "--details", "--cluster", "plain", "--session", "latest")
    (row,) = json.loads(shown.stdout)
    assert (row["recording"], row["recordedShare"]) == ("nothing recorded", None)
    table = run("sessions", "--storage", archive, "--details", "--cluster", "plain").stdout
    assert "nothing recorded" in table


def test_filters_and_paging(archive: str) -> None:
    names = [row["sessionName"] for row in json.loads(run("sessions", "--storage", archive, "--json").stdout)]
    page = json.loads(run("sessions", "--storage", archive, "--json", "--offset", "1", "--limit", "1").stdout)
    assert [row["sessionName"] for row in page] == names[1:2]
    latest = run("sessions", "--storage", archive, "--json", "--cluster", "plain", "--session", "latest")
    assert [row["sessionName"] for row in json.loads(latest.stdout)] == ["session_2026-02-01_00-00-00_000001_1"]


def test_kuberays_options_and_variables_name_the_same_archive(archive: str) -> None:
    folder = archive.removeprefix("file://")
    expected = run("sessions", "--storage", archive, "--json").stdout
    assert run("sessions", "--runtime-class-name=localtest", f"--ray-root-dir={folder}", "--json").stdout == expected
    assert run("sessions", "--json", STORAGE_BACKEND="localtest", STORAGE_ROOT_DIR=folder).stdout == expected
    assert run("sessions", "--json", RAY_HISTORY_STORAGE=archive).stdout == expected


def test_a_closed_pipe_causes_no_traceback(archive: str) -> None:
    script = f"'{COMMAND}' sessions --storage {archive} | head -c 1"
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in shown.stderr


def test_without_storage_it_is_the_archive_of_the_user(tmp_path: Path) -> None:
    shown = run("sessions", HOME=str(tmp_path))
    archive = tmp_path / ".ray-history" / "archive"
    assert (shown.returncode, archive.stat().st_mode & 0o777) == (0, 0o700)
    assert f"using the archive {archive.as_uri()}, because no storage is given" in shown.stderr
    open_store(DirectorySettings(archive)).put(
        "cluster-metadata/raycluster/default_mine/session_2026-01-01_00-00-00_000001_1", b""
    )
    assert "mine" in run("sessions", HOME=str(tmp_path)).stdout
    assert "mine" not in run("sessions", HOME=str(tmp_path), RAY_HISTORY_STORAGE=f"{tmp_path.as_uri()}").stdout
