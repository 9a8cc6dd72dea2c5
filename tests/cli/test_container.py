"""The entry point of the container image, with the containers of KubeRay's manifests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ray_history.archive.layout import Cluster
from ray_history.archive.settings import StorageOptions
from ray_history.cli.container import command_line
from ray_history.cli.kuberay import translate
from ray_history.collector.settings import resolve
from tests.cli.kuberay_samples import COLLECTORS, INJECTED, SERVERS, Sample
from tests.cli.test_kuberay import parse

PLACES = {
    "s3": "s3://ray-historyserver",
    "gcs": "gs://ray-historyserver",
    "azureblob": "az://ray-historyserver",
    "aliyunoss": "oss://ray-historyserver",
}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {name for sample in (*SERVERS, *COLLECTORS, *INJECTED) for name in sample.variables}
    for name in [name for name in os.environ if name in names or name.startswith("RAY_HISTORY_")]:
        monkeypatch.delenv(name)


def started(sample: Sample) -> list[str]:
    """What runs: `command` replaces the entry point, `args` follow it."""
    return [*sample.command, *sample.args] if sample.command else command_line(sample.args, sample.variables)


def storage_of(options: dict[str, object], sample: Sample) -> str:
    given = {name: str(options[name] or "") for name in ("storage_backend", "storage_root_dir")}
    return StorageOptions(**given).resolve(sample.variables).url


@pytest.mark.parametrize("sample", SERVERS, ids=lambda sample: sample.title)
def test_the_servers_of_kuberays_manifests_start_as_servers(sample: Sample) -> None:
    program, *words = started(sample)
    assert program == "historyserver"
    options = parse("serve", translate("serve", words)[0])
    backend = sample.variables.get("STORAGE_BACKEND", "azureblob")
    assert storage_of(options, sample) == PLACES[backend]


@pytest.mark.parametrize("sample", [*COLLECTORS, *INJECTED], ids=lambda sample: sample.title)
def test_the_collectors_of_kuberays_manifests_start_as_collectors(sample: Sample) -> None:
    env = sample.variables
    assert started(sample) == ["collector"]
    settings = resolve({}, env)
    owner = env.get("OWNER_KIND", "").lower()
    assert settings.cluster == Cluster("default", "demo", owner, env.get("OWNER_NAME", ""))
    assert (settings.head, settings.port, settings.ray_root) == (env["RAY_ROLE"] == "Head", 8084, Path("/tmp/ray"))
    assert storage_of({"storage_backend": "", "storage_root_dir": ""}, sample) == PLACES[env["STORAGE_BACKEND"]]


@pytest.mark.parametrize(
    ("words", "env", "expected"),
    [
        ([], {}, ["historyserver"]),
        ([], {"RAY_ROLE": "Head"}, ["collector"]),
        ([], {"RAY_ROLE": ""}, ["historyserver"]),
        (["--help"], {"RAY_CLUSTER_NAME": "c"}, ["collector", "--help"]),
        (["-role=Head"], {"RAY_CLUSTER_NAME": "c"}, ["collector", "-role=Head"]),
        (["historyserver", "--x"], {"RAY_ROLE": "Head"}, ["historyserver", "--x"]),
        (["collector"], {}, ["collector"]),
        (["ray-history", "sessions"], {}, ["ray-history", "sessions"]),
        (["sessions", "--json"], {}, ["ray-history", "sessions", "--json"]),
        (["sh", "-c", "ls"], {}, ["sh", "-c", "ls"]),
    ],
)
def test_the_first_word_decides_then_the_environment(
    words: list[str], env: dict[str, str], expected: list[str]
) -> None:
    assert command_line(words, env) == expected


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ray_history.cli.container", *words]
    return subprocess.run(command, env={"PATH": "/usr/bin:/bin", **env}, capture_output=True, text=True, check=False)


def test_it_runs_the_program() -> None:
    assert re.search(r"Usage: historyserver|Usage: ray-history serve|--runtime-class-name", run("--help").stdout)
    assert "--push-interval" in run("--help", RAY_ROLE="Head").stdout
    assert run("sh", "-c", "exit 7").returncode == 7


def test_a_word_that_is_no_program_is_reported() -> None:
    shown = run("historyservr")
    assert (shown.returncode, shown.stdout) == (127, "")
    assert "cannot run 'historyservr': No such file or directory; use one of collector, historyserver" in shown.stderr
