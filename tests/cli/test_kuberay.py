"""KubeRay's command lines, run by our two programs of the same names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from ray_history.cli.kuberay import translate
from ray_history.cli.main import ray_history
from tests.cli.kuberay_samples import COLLECTOR_FLAGS, SERVER_FLAGS

KUBERAYS = [("collect", flag) for flag in COLLECTOR_FLAGS] + [("serve", flag) for flag in SERVER_FLAGS]


def parse(verb: str, words: list[str]) -> dict[str, object]:
    command = ray_history.get_command(click.Context(ray_history), verb)
    assert command
    return dict(command.make_context(verb, words).params)


@pytest.mark.parametrize(("verb", "flag"), KUBERAYS, ids=lambda part: str(part))
@pytest.mark.parametrize("dashes", ["-", "--"])
def test_every_flag_of_kuberay_is_known(verb: str, flag: str, dashes: str) -> None:
    words, unknown = translate(verb, [dashes + flag.removeprefix("--")])
    assert unknown == []
    parse(verb, words)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], {"kube": "auto", "live_proxy": True, "auth": None}),
        (["--enable-live-clusters"], {"kube": "on", "live_proxy": True}),
        (["-enable-live-clusters=true"], {"kube": "on", "live_proxy": True}),
        (["--enable-live-clusters=false"], {"kube": "off"}),
        (["--enable-auth"], {"auth": "kubernetes"}),
        (["--enable-auth=f"], {"auth": None}),
    ],
)
def test_switches_of_newer_servers_are_translated(
    arguments: list[str], expected: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_HISTORY_AUTH", "RAY_HISTORY_KUBE"):
        monkeypatch.delenv(name, raising=False)
    words, unknown = translate("serve", arguments)
    options = parse("serve", words)
    assert ({name: options[name] for name in expected}, unknown) == (expected, [])


def test_a_switch_that_is_neither_true_nor_false_is_refused() -> None:
    """It may be the one that protects the sessions."""
    with pytest.raises(click.UsageError, match="'perhaps' is not a valid boolean"):
        translate("serve", ["--enable-auth=perhaps"])


@pytest.mark.parametrize(
    ("arguments", "words", "unknown"),
    [
        (["--newer", "--role=Head"], ["--role=Head"], ["--newer"]),
        (["--newer=7", "--role", "Head"], ["--role", "Head"], ["--newer=7"]),
        (["-newer", "7", "-role", "Head"], ["--role", "Head"], ["--newer 7"]),
        (["--role", "--odd", "--newer"], ["--role", "--odd"], ["--newer"]),
        (["--enable-log-collector", "--newer"], ["--enable-log-collector"], ["--newer"]),
        (["--ray-head"], ["--role=Head"], []),
        (["--ray-head=false"], [], []),
        (["--help"], ["--help"], []),
    ],
)
def test_unknown_flags_are_left_out_with_their_values(
    arguments: list[str], words: list[str], unknown: list[str]
) -> None:
    assert translate("collect", arguments) == (words, unknown)


def run(program: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    clean = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **env}
    return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=60, check=False)


def test_an_unknown_flag_is_a_warning_and_the_program_goes_on(tmp_path: Path) -> None:
    """It ends later, by a wrong setting."""
    shown = run(
        "collector", "--from-2030=x", "--role=boss", "--ray-cluster-name=c", RAY_HISTORY_STORAGE=tmp_path.as_uri()
    )
    assert "ignored the unknown flag --from-2030=x" in shown.stderr
    assert "use Head or Worker" in shown.stderr


def test_malformed_variables_are_warnings_of_the_collector(tmp_path: Path) -> None:
    env = {
        "RAY_HISTORY_STORAGE": tmp_path.as_uri(),
        "PUSH_INTERVAL": "60",
        "EVENTS_PORT": "abc",
        "LOG_BATCHING": "abc",
        "ENABLE_EVENT_COLLECTOR": "maybe",
        "RAY_COLLECTOR_POLL_INTERVAL": "0",
        "RAY_DASHBOARD_ADDRESS": "tcp://10.0.0.1:8265",
    }
    shown = run("collector", "--role=Head", **env)
    assert "no cluster name given" in shown.stderr  # the only reason to exit
    for name in (
        "PUSH_INTERVAL",
        "EVENTS_PORT",
        "LOG_BATCHING",
        "ENABLE_EVENT_COLLECTOR",
        "RAY_COLLECTOR_POLL_INTERVAL",
        "RAY_DASHBOARD_ADDRESS",
    ):
        assert f"{name} is " in shown.stderr


def test_ray_history_is_strict(tmp_path: Path) -> None:
    storage = f"--storage={tmp_path.as_uri()}"
    assert "No such option" in run("ray-history", "collect", storage, "--from-2030=x").stderr
    assert "No such option" in run("ray-history", "serve", storage, "--enable-auth").stderr
    wrong = run("ray-history", "collect", storage, "--cluster=c", "--push-interval=60")
    assert (wrong.returncode, "write a duration" in wrong.stderr) == (2, True)
