"""`ray-history ui` opens the pages of an archive in a browser, and starts a server only if none runs."""

from __future__ import annotations

import os
import signal
import subprocess
import urllib.request
from pathlib import Path

import click
import pytest

from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.cli.ui import page_of
from tests.cli.installed import COMMAND, run
from tests.support.processes import free_port
from tests.support.waiting import until


@pytest.mark.timeout(120)
def test_a_second_call_uses_the_server_of_the_first(tmp_path: Path) -> None:
    opened, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o755)
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "BROWSER": str(browser)}
    port = free_port()
    servers = tmp_path / ".ray-history" / "servers"
    server = subprocess.Popen([COMMAND, "ui", f"--port={port}"], env=env, stdout=subprocess.PIPE, text=True)
    try:
        until(opened.exists)
        assert opened.read_text() == f"http://127.0.0.1:{port}/\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as page:
            archive = (tmp_path / ".ray-history" / "archive").as_uri()
            assert f"ray-history run --storage {archive} -- python train.py" in page.read().decode()
        again = run("ui", "train", **env)
        page_of_train = f"http://127.0.0.1:{port}/s/default/train/latest/_session\n"
        assert (again.returncode, again.stdout) == (0, page_of_train)
        until(lambda: opened.read_text().endswith(page_of_train))
        assert run("ui", "--no-browser", **env).stdout == f"http://127.0.0.1:{port}/\n"
        assert len(opened.read_text().splitlines()) == 2
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    assert list(servers.iterdir()) == []


def test_a_server_that_was_killed_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray_history.local.server import announced, running_server

    monkeypatch.setenv("HOME", str(tmp_path))
    url = open_store(DirectorySettings(tmp_path)).url
    assert running_server(url) is None
    with announced(url, f"http://127.0.0.1:{free_port()}"):
        assert running_server(url) is None, "its process lives, but its address does not answer"
    (tmp_path / ".ray-history" / "servers").joinpath("x").write_text("{")
    assert running_server(url) is None


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("", "/"),
        ("train", "/s/default/train/latest/_session"),
        ("train/latest", "/s/default/train/latest/_session"),
        ("team/train", "/s/team/train/latest/_session"),
        (
            "train/session_2026-01-01_00-00-00_000001_1",
            "/s/default/train/session_2026-01-01_00-00-00_000001_1/_session",
        ),
        ("team/train/latest", "/s/team/train/latest/_session"),
    ],
)
def test_sessions_are_named_as_everywhere(name: str, path: str) -> None:
    assert page_of(name) == path


@pytest.mark.parametrize("name", ["a/b/c/d", "a//b", "a/b//"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(click.UsageError, match="is not of the form"):
        page_of(name)
