"""The command `ray-history`: help, exit codes and logging."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ray_history import __version__
from ray_history.cli.main import VERBS
from tests.cli.installed import run

HEAVY = {"aiohttp", "asyncio", "duckdb", "jinja2", "msgspec", "obstore", "starlette", "uvicorn"}


def test_no_arguments_show_the_help() -> None:
    shown = run()
    assert shown.returncode == 0
    assert "sessions" in shown.stdout


def test_version() -> None:
    assert run("--version").stdout.strip().endswith(__version__)


def test_help_names_every_option() -> None:
    shown = run("sessions", "--help").stdout
    for option in ("--storage URL", "--runtime-class-name", "--ray-root-dir", "--namespace", "--json", "--unmarked"):
        assert option in shown


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        (("sessions",), {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "no storage given: use --storage URL"),
        (("sessions",), {"HOME": "/dev/null"}, "/dev/null/.ray-history/archive cannot be created (Not a directory)"),
        (("sessions", "--storage", "s4://x"), {}, "invalid storage URL"),
        (("sessions", "--storage", "file:///nonexistent/archive"), {}, "there is no such directory"),
        (("sessions", "--nonsense"), {}, "No such option"),
        (("nonsense",), {}, "No such command"),
    ],
)
def test_wrong_usage_exits_with_2_and_a_message(arguments: tuple[str, ...], env: dict[str, str], message: str) -> None:
    shown = run(*arguments, **env)
    assert shown.returncode == 2
    assert message in shown.stderr
    assert "Traceback" not in shown.stderr
    assert shown.stdout == ""


def test_an_unreachable_store_exits_with_1_and_names_the_setting() -> None:
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
    assert "S3FORCE_PATH_STYLE=true" in shown.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["collect", "--help"], ["serve", "--help"], ["sessions", "--help"]])
def test_help_imports_no_heavy_library(arguments: list[str]) -> None:
    script = (
        "import sys\nfrom ray_history.cli import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, *arguments]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert HEAVY & set(shown.stderr.split()) == set()


def test_a_verb_imports_only_its_own_module() -> None:
    script = (
        "import sys\nfrom ray_history.cli import main\n"
        "try: main(['sessions', '--help'])\nexcept SystemExit: print(*sys.modules, file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert {f"ray_history.cli.{verb}" for verb in VERBS} & set(shown.stderr.split()) == {"ray_history.cli.sessions"}


def test_logs_are_one_json_object_a_line_on_request(tmp_path: Path) -> None:
    marker = tmp_path / "cluster-metadata" / "raycluster" / "odd" / "odd"
    marker.parent.mkdir(parents=True)
    marker.write_bytes(b"x")
    shown = run("--log-format", "json", "sessions", "--storage", tmp_path.as_uri())
    records = [json.loads(line) for line in shown.stderr.splitlines()]
    assert records[0]["level"] == "warning"
    assert "ignored invalid session markers: 1" in records[0]["message"]
    quiet = run("--log-level", "error", "sessions", "--storage", tmp_path.as_uri())
    assert quiet.stderr == ""
