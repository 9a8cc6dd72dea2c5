"""The settings of running clusters."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_history.kube import Misconfigured
from ray_history.server.live import LiveSettings, api_server, make_fleet
from tests.collector.collector_process import run_cli

Config = Callable[[str], Path]


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without Kubernetes and kubectl."""
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    def write(name: str) -> Path:
        file = tmp_path / name
        contexts = [f"{name}-a", f"{name}-b"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            json.dumps(
                {
                    "current-context": contexts[0],
                    "contexts": [{"name": each, "context": {"cluster": each}} for each in contexts],
                    "clusters": [{"name": each, "cluster": {"server": f"http://{each}"}} for each in contexts],
                }
            )
        )
        return file

    return write


def servers(settings: LiveSettings) -> list[str]:
    return [discovery.kubernetes.access.server for discovery in make_fleet(settings)._discoveries]


def test_outside_of_kubernetes_the_fleet_is_empty() -> None:
    fleet = make_fleet(LiveSettings())
    assert (fleet.has_kubernetes, fleet.heads, fleet.running, fleet.missing) == (False, None, [], [])


def test_kubectls_kubeconfig_is_used_only_on_request(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(config("mine")))
    assert servers(LiveSettings()) == []
    assert servers(LiveSettings(kube="on")) == ["http://mine-a"]
    assert servers(LiveSettings(use_kubernetes_proxy=True)) == ["http://mine-a"]
    assert servers(LiveSettings(kube_context="mine-b")) == ["http://mine-b"]
    assert servers(LiveSettings(kube="off", kube_context="mine-b")) == []
    assert api_server(LiveSettings()).access.server == "http://mine-a"


def test_several_kubeconfigs_and_contexts_are_several_api_servers(config: Config) -> None:
    named = f"{config('one')},{config('two')}#two-b, {config('one')}#one-b"
    settings = LiveSettings(kubeconfigs=named, use_kubernetes_proxy=True)
    assert servers(settings) == ["http://one-a", "http://two-b", "http://one-b"]
    assert api_server(settings).access.server == "http://one-a"
    with pytest.raises(Misconfigured, match="--use-kubernetes-proxy"):
        make_fleet(LiveSettings(kubeconfigs=named))
    assert make_fleet(LiveSettings(kubeconfigs=named, live_proxy=False)).heads is None


def test_the_pace_of_requests_holds_for_finding_clusters_and_for_authentication(config: Config) -> None:
    settings = LiveSettings(kubeconfigs=str(config("one")), kube_api_qps=7, kube_api_burst=3)
    clients = [make_fleet(settings)._discoveries[0].kubernetes, api_server(settings)]
    assert [(client._pace._rate, client._pace._burst) for client in clients] == [(7, 3), (7, 3)]


def test_a_missing_kubeconfig_is_an_error_only_if_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (LiveSettings(kube="on"), LiveSettings(kubeconfigs="/nowhere"), LiveSettings(kube_context="x")):
        with pytest.raises(Misconfigured):
            make_fleet(wrong)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")  # a pod without a service account
    assert make_fleet(LiveSettings()).has_kubernetes is False
    with pytest.raises(Misconfigured):
        make_fleet(LiveSettings(kube="on"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--kubeconfigs", "/nowhere"), "the kubeconfig /nowhere cannot be read"),
        (("--kube", "on"), "there is no kubeconfig"),
        (("--kube", "sometimes"), "is not one of"),
        (("--kube-api-qps", "0"), "--kube-api-qps"),
        (("--use-kubernetes-proxy=perhaps",), "not a valid boolean"),
    ],
)
def test_invalid_settings_are_reported_in_one_line(tmp_path: Path, flags: tuple[str, ...], message: str) -> None:
    done = run_cli("serve", "--storage", tmp_path.as_uri(), *flags, PYTHONPATH=os.environ.get("PYTHONPATH", ""))
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
