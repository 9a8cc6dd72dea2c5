"""The settings of authentication: without a choice, the server is open on loopback only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import requests

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.auth import AuthSettings, InvalidAuth, check_exposure, is_local, make_backend
from tests.collector.collector_process import run_cli
from tests.server.auth.people import ADA, SESSION, bearer, rules_file
from tests.server.test_process import running
from tests.support.captured import write_archive

EVERYWHERE = "0.0.0.0"  # noqa: S104


def started(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with the sources under test until it exits."""
    return run_cli("serve", *arguments, **{name: value for name, value in os.environ.items() if name == "PYTHONPATH"})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start") / "archive"
    write_archive(open_store(DirectorySettings(folder)), Generation.C, Cluster("default", "demo"))
    return folder


@pytest.mark.parametrize("host", [EVERYWHERE, "::", "192.0.2.1", "history.example"])
def test_an_open_server_must_be_requested_explicitly(host: str, place: Path) -> None:
    done = started("--storage", place.as_uri(), "--host", host)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    for word in ("--auth token, kubernetes or header", "--auth none", host):
        assert word in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--auth", "token"), "--auth token needs --auth-tokens-file FILE"),
        (("--auth", "token", "--auth-tokens-file", "/nowhere"), "/nowhere cannot be read"),
        (("--auth", "header", "--auth-rules-file", "/nowhere"), "needs --auth-trusted-peers"),
        (("--auth", "header", "--auth-trusted-peers", "10.0.0.0/99"), "10.0.0.0/99"),
        (("--auth", "kubernetes"), "--auth kubernetes: "),
        (("--auth", "kubernetes", "--auth-access", "everything"), "--auth"),
        (("--auth", "magic"), "magic"),
    ],
)
def test_invalid_settings_exit_with_code_2(flags: tuple[str, ...], message: str, place: Path) -> None:
    done = started("--storage", place.as_uri(), *flags)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_with_tokens_of_a_file(place: Path, tmp_path: Path) -> None:
    flags = ("--auth", "token", "--auth-tokens-file", str(rules_file(tmp_path)), "--workers", "2")
    with running(tmp_path, "ray-history", "serve", "--storage", place.as_uri(), *flags) as (process, port):
        url = f"http://127.0.0.1:{port}/s/default/demo/{SESSION}/api/v0/nodes"
        assert requests.get(url, timeout=60).status_code == 401
        assert requests.get(url, headers=bearer(ADA), timeout=60).json()["data"]["result"]["total"] == 2
        log = process.log_tail()
        assert '"event":"denied"' in log
        assert ADA not in log


def test_the_drop_in_is_open_like_kuberays_and_logs_a_warning(place: Path, tmp_path: Path) -> None:
    flags = ("-storage-backend=localtest", f"--storage-root-dir={place}")
    with running(tmp_path, "historyserver", *flags) as (process, port):
        assert b'"name":"demo"' in requests.get(f"http://127.0.0.1:{port}/clusters", timeout=60).content
        log = process.log_tail()
    assert "warning" in log
    assert "every client can see every session; restrict access with --auth token, kubernetes or header" in log


def test_the_drop_in_can_be_guarded(place: Path, tmp_path: Path) -> None:
    flags = ("-storage-backend=localtest", f"--storage-root-dir={place}", "-auth=token")
    with running(tmp_path, "historyserver", *flags, f"--auth-tokens-file={rules_file(tmp_path)}") as (process, port):
        assert requests.get(f"http://127.0.0.1:{port}/clusters", timeout=60).status_code == 401
        assert "every client can see every session" not in process.log_tail()


def test_loopback_needs_no_explicit_choice() -> None:
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        assert is_local(host)
        check_exposure(AuthSettings(), host)
    with pytest.raises(InvalidAuth):
        check_exposure(AuthSettings(), EVERYWHERE)
    check_exposure(AuthSettings(auth="none"), EVERYWHERE)


def test_an_unknown_mode_is_never_an_open_one() -> None:
    with pytest.raises(InvalidAuth, match="unknown --auth disabled"):
        make_backend(AuthSettings(auth="disabled"), lambda: pytest.fail("unexpected request"))
