"""`ray-history index`: many sessions ahead of time, with errors in single ones, and interrupted at any time."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from bench.generated import generate
from ray_history.archive.catalog import Session, read_catalog
from ray_history.archive.layout import Cluster
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.index.cache import Cache, Opened
from ray_history.index.indexer import Indexer
from ray_history.index.locks import CancelToken
from ray_history.index.prebuild import prebuild
from tests.support.waiting import until

COMMAND = (sys.executable, "-m", "ray_history", "--log-level", "error", "index")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("archives")
    for number in range(3):
        generate(directory / "parts", tasks=200, seed=number, cluster=Cluster("default", f"c{number}"))
    return directory / "parts"


def indexed(archive: Path, cache: Path, *names: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "--storage", archive.as_uri(), "--cache-dir", str(cache), *names]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_sessions_are_built_once_and_downloaded_elsewhere(archive: Path, tmp_path: Path) -> None:
    for cache, names, how in (
        ("here", ("default/c0", "default/c1/latest"), ["built", "built"]),
        ("here", ("--all",), ["built", "up to date", "up to date"]),
        ("there", ("--all",), ["fetched", "fetched", "fetched"]),
    ):
        ran = indexed(archive, tmp_path / cache, *names)
        assert ran.returncode == 0, ran.stderr
        assert sorted(line.split(": ")[1].split(", ")[0] for line in ran.stdout.splitlines()) == how
        assert all(", 200 tasks (" in line for line in ran.stdout.splitlines())


def test_tables_are_read_as_documented(archive: Path, tmp_path: Path) -> None:
    assert indexed(archive, tmp_path / "cache", "default/c0").returncode == 0
    (manifest,) = archive.glob("history-index/v1/**/c0/*/manifest.json")
    documented = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
    by_manifest = documented[documented.index("set variable place") :].partition("```")[0]
    told = re.sub(r"'s3://[^']*'", f"'{manifest.parent}'", by_manifest, count=1)
    assert told != by_manifest
    ((attempts,),) = duckdb.execute(told).fetchall()
    assert attempts >= 200


def test_names_and_all_exclude_each_other(archive: Path, tmp_path: Path) -> None:
    ran = indexed(archive, tmp_path, "--all", "default/c0")
    assert (ran.returncode, "or drop default/c0" in ran.stderr) == (2, True)


def on_a_terminal(columns: int, *command: str, interrupted: Callable[[], bool] = lambda: False) -> tuple[int, str]:
    """How the command ends, and what it writes there; with Ctrl-C as soon as it is `interrupted`."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, columns))
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its) as process:
        os.close(its)
        written = b""
        with contextlib.suppress(OSError):  # as it says on Linux that nobody has the other end any more
            while piece := os.read(ours, 65536):
                written += piece
                if interrupted():
                    process.send_signal(signal.SIGINT)
                    interrupted = lambda: False  # noqa: E731  # once
        os.close(ours)
    return process.returncode, written.decode()


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_a_terminal_shows_one_progress_line_and_each_outcome(archive: Path, tmp_path: Path, columns: int) -> None:
    command = [*COMMAND, "--storage", archive.as_uri(), "--cache-dir", str(tmp_path), "--no-share-index", "--all"]
    status, written = on_a_terminal(columns, *command)
    shown = written.split("\r\x1b[K")
    assert status == 0
    progress = [line for line in shown if line.startswith("[")]
    assert max(map(len, progress)) < columns
    told = [line for line in shown if line and line not in progress]
    assert len(told) == 3
    assert all(re.fullmatch(r"default/c[012]/session_\S+: (built|fetched), .*\r\n", line) for line in told)


def test_an_interruption_is_reported_on_its_own_line(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    archive = tmp_path_factory.mktemp("large")
    generate(archive, tasks=20_000)
    command = [*COMMAND, "--storage", archive.as_uri(), "--cache-dir", str(tmp_path), "--all"]
    status, written = on_a_terminal(100, *command, interrupted=lambda: any(tmp_path.glob("*/new-*/*/*")))
    assert status == 1
    assert written.endswith("\r\x1b[Kray-history: interrupted; 0 of 1 sessions are done\r\n")


class _Flawed(Indexer):
    """A stand-in for a program with a mistake that one session brings to light."""

    def open(self, session: Session, *args: object, **kwargs: object) -> Opened:
        if session.cluster.name == "c1":
            raise ZeroDivisionError("of all things")
        return super().open(session, *args, **kwargs)  # type: ignore[arg-type]


def test_an_error_in_one_session_does_not_affect_the_others(archive: Path, tmp_path: Path) -> None:
    store = open_store(DirectorySettings(archive))
    indexer = _Flawed(store, Cache(tmp_path / "cache", 1 << 30), share=False)
    outcomes = {
        each.session.cluster.name: each for each in prebuild(indexer, read_catalog(store).sessions, CancelToken())
    }
    assert [name for name in sorted(outcomes) if outcomes[name].how == "failed"] == ["c1"]
    assert len(outcomes) == 3
    assert outcomes["c1"].error == "ZeroDivisionError: of all things"


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM], ids=lambda told: told.name)
def test_a_signal_ends_it_without_partial_indexes(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, told: signal.Signals
) -> None:
    archive, cache = tmp_path_factory.mktemp("large"), tmp_path / "cache"
    generate(archive, tasks=20_000)
    command = [*COMMAND, "--storage", archive.as_uri(), "--cache-dir", str(cache), "--all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: any(cache.glob("*/new-*/*/*")) or process.poll() is not None, pause=0.005)
        assert process.poll() is None
        process.send_signal(told)
        said, complained = process.communicate(timeout=60)
    assert (process.returncode, said) == (1, "")
    assert complained == "ray-history: interrupted; 0 of 1 sessions are done\n"
    assert list(cache.glob("*/new-*")) == []
