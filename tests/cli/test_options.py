"""Options made from declared settings."""

from __future__ import annotations

import re
from dataclasses import asdict

import click
import pytest

from ray_history.cli.collect import command as collect
from ray_history.cli.inject import command as inject
from ray_history.cli.kuberay import with_two_dashes
from ray_history.cli.serve import command as serve
from ray_history.log_setup import LogSettings
from ray_history.server.settings import ServerSettings
from ray_history.setting import settings_of


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (serve, collect, inject):
        for option in command.params:
            for variable in [option.envvar] if isinstance(option.envvar, str) else option.envvar or ():
                monkeypatch.delenv(variable, raising=False)


def parse(command: click.Command, *arguments: str) -> dict[str, object]:
    return dict(command.make_context("test", list(arguments)).params)


def test_defaults_of_serve_are_those_of_its_settings() -> None:
    log = {entry.name for entry in settings_of(LogSettings)}
    expected = {name: value for name, value in asdict(ServerSettings()).items() if name not in log}
    options = parse(serve)
    assert {name: options[name] for name in expected} == expected


@pytest.mark.parametrize("flag", ["--prebuild", "--index-ahead"])
def test_former_options_keep_working(flag: str) -> None:
    assert parse(serve, flag, "7")["prebuild"] == 7


def test_former_variables_keep_working(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_HISTORY_INDEX_AHEAD", "7")
    assert parse(serve)["prebuild"] == 7
    monkeypatch.setenv("RAY_HISTORY_PREBUILD", "8")
    assert parse(serve)["prebuild"] == 8


def test_a_service_named_ray_history_does_not_change_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes sets this variable in every pod of the namespace."""
    monkeypatch.setenv("RAY_HISTORY_PORT", "tcp://10.0.0.1:8080")
    assert parse(serve)["port"] == 8080
    monkeypatch.setenv("RAY_HISTORY_PORT", "many")
    with pytest.raises(click.UsageError, match="'many' is not a valid integer"):
        parse(serve)


def test_help_shows_current_names_only() -> None:
    text = serve.get_help(click.Context(serve)) + inject.get_help(click.Context(inject))
    assert "--prebuild" in text
    assert "--pvc" in text
    assert "RAY_HISTORY_PREBUILD" in text
    for former in ("--index-ahead", "--claim", "INDEX_AHEAD"):
        assert former not in text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], False), (["--use-kubernetes-proxy"], True), (["--use-kubernetes-proxy=false"], False)],
)
def test_switches_are_written_as_in_go(arguments: list[str], expected: bool) -> None:
    assert parse(serve, *arguments)["use_kubernetes_proxy"] is expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "0"], "0 is not in the range 1<=x<=65535"),
        (["--auth-cache", "4000"], "not in the range 0<=x<=3600"),
        (["--kube-api-qps", "0"], "not in the range x>0"),
        (["--auth", "ldap"], "'ldap' is not one of"),
        (["--tls-cert", "/nonexistent/cert.pem"], "does not exist"),
    ],
)
def test_invalid_values_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(click.UsageError, match=re.escape(message)):
        parse(serve, *arguments)


def test_one_dash_is_as_good_as_two() -> None:
    assert with_two_dashes(["-ray-root-dir=x", "--role", "Head", "-h", "-1"]) == [
        "--ray-root-dir=x",
        "--role",
        "Head",
        "-h",
        "-1",
    ]
