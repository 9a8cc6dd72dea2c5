"""Exec plugins of kubeconfigs: what they receive, what they may return, and how their failures are reported."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ray_history.kube import Misconfigured, Unreachable
from ray_history.kube.exec_plugin import Credential, ExecPlugin

V1 = "client.authentication.k8s.io/v1"
CLUSTER = {"server": "https://kube.example:6443"}


def run(code: str, folder: Path, **entry: Any) -> Credential:
    described = {"apiVersion": V1, "command": sys.executable, "args": ["-c", code], **entry}
    return asyncio.run(ExecPlugin(described, folder, lambda: CLUSTER).credential())


def printing(status: dict[str, Any]) -> str:
    return f"print({json.dumps(json.dumps({'kind': 'ExecCredential', 'apiVersion': V1, 'status': status}))})"


@pytest.mark.parametrize(
    ("status", "credential"),
    [
        ({"token": "abc"}, Credential("abc")),
        ({"token": "abc", "expirationTimestamp": "2026-01-01T00:00:00Z"}, Credential("abc", None, 1_767_225_600.0)),
        (
            {"clientCertificateData": "CERT", "clientKeyData": "KEY"},
            Credential(None, (b"CERT", b"KEY")),
        ),
        ({"token": "abc", "clientCertificateData": "CERT"}, Credential("abc")),
        ({}, Credential()),
    ],
)
def test_credentials(status: dict[str, Any], credential: Credential, tmp_path: Path) -> None:
    assert run(printing(status), tmp_path) == credential


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "no ExecCredential"),
        ("not JSON", "no ExecCredential"),
        ("[]", "no ExecCredential"),
        ("{}", "no ExecCredential"),
        ('{"status": null}', "no ExecCredential"),
        ('{"status": {"token": "a", "expirationTimestamp": "soon"}}', "no ExecCredential"),
        ('{"status": {"token": "two words"}}', "contains no valid token"),
        ('{"status": {"token": "line\\nbreak"}}', "contains no valid token"),
    ],
)
def test_other_output_is_refused(output: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=message):
        run(f"print({output!r})", tmp_path)


def test_the_plugin_receives_its_environment_and_the_cluster_on_request(tmp_path: Path) -> None:
    code = (
        "import json, os; info = json.loads(os.environ['KUBERNETES_EXEC_INFO']); "
        "token = '.'.join([os.environ['REGION'], info['spec'].get('cluster', {}).get('server', '-')[:5]]); "
        "print(json.dumps({'status': {'token': token}}))"
    )
    env = [{"name": "REGION", "value": "eu"}]
    assert run(code, tmp_path, env=env).token == "eu.-"
    assert run(code, tmp_path, env=env, provideClusterInfo=True).token == "eu.https"


def test_a_command_with_a_slash_is_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    plugin = tmp_path / "bin" / "login"
    plugin.parent.mkdir()
    plugin.write_text(f"#!{sys.executable}\n{printing({'token': 'here'})}\n")
    plugin.chmod(0o755)
    assert run("", tmp_path, command="bin/login", args=[]).token == "here"


@pytest.mark.parametrize(
    "entry",
    [{"apiVersion": V1}, {"command": "x"}, {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "x"}],
)
def test_an_entry_needs_a_command_and_a_supported_version(entry: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="needs a command and an apiVersion"):
        ExecPlugin(entry, tmp_path, dict)


def test_failures_are_reported_with_the_output_or_the_hint_of_the_plugin(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="failed with 3: not logged in"):
        run("import sys; print('not logged in', file=sys.stderr); sys.exit(3)", tmp_path)
    with pytest.raises(Misconfigured, match="get it from the cloud"):
        run("", tmp_path, command="no-such-program-here", installHint="get it from the cloud")
