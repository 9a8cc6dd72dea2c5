"""Kubeconfigs: files that are merged, contexts, credentials, and refusals in one line."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from ray_history.kube import Access, Misconfigured, default_kubeconfigs, from_kubeconfig


def config(user: dict[str, Any] | None = None, *, name: str = "blue", **cluster: Any) -> dict[str, Any]:
    return {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}.example:8080/", **cluster}}],
        "users": [{"name": name, "user": user or {}}],
    }


def written(file: Path, content: dict[str, Any]) -> Path:
    file.write_text(json.dumps(content))
    return file


def headers(access: Access) -> dict[str, str]:
    return dict(asyncio.run(access.identity()).headers)


def basic(pair: str) -> str:
    return "Basic " + base64.b64encode(pair.encode()).decode()


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({}, {}),
        ({"token": "abc"}, {"Authorization": "Bearer abc"}),
        ({"tokenFile": "tokens/one"}, {"Authorization": "Bearer from-a-file"}),
        ({"token": "abc", "tokenFile": "tokens/one"}, {"Authorization": "Bearer abc"}),
        ({"username": "ada", "password": "pw"}, {"Authorization": basic("ada:pw")}),
        ({"username": "ada"}, {"Authorization": basic("ada:")}),
        ({"token": "abc", "username": "ada"}, {"Authorization": "Bearer abc"}),
        ({"token": "abc", "as": "bob"}, {"Authorization": "Bearer abc", "Impersonate-User": "bob"}),
    ],
)
def test_headers_of_a_user(user: dict[str, Any], expected: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "one").write_text("from-a-file\n")
    assert headers(from_kubeconfig([written(tmp_path / "config", config(user))])) == expected


def test_cluster_settings_are_used(tmp_path: Path) -> None:
    cluster = {"tls-server-name": "kube.internal", "proxy-url": "http://proxy:3128"}
    access = from_kubeconfig([written(tmp_path / "config", config(**cluster))])
    assert (access.server, access.name) == ("http://blue.example:8080", "blue")
    assert (access.tls_name, access.proxy) == ("kube.internal", "http://proxy:3128")


def test_the_first_file_wins_and_any_context_can_be_chosen(tmp_path: Path) -> None:
    first = written(tmp_path / "first", config({"token": "one"}, name="blue"))
    other = config({"token": "two"}, name="green")
    other["users"].append({"name": "blue", "user": {"token": "ignored"}})
    files = [first, written(tmp_path / "second", other)]
    assert headers(from_kubeconfig(files)) == {"Authorization": "Bearer one"}
    assert headers(from_kubeconfig(files, "green")) == {"Authorization": "Bearer two"}


def test_default_files(tmp_path: Path) -> None:
    one, two = written(tmp_path / "one", {}), written(tmp_path / "two", {})
    home = tmp_path / ".kube"
    home.mkdir()
    usual = written(home / "config", {})
    assert default_kubeconfigs({"KUBECONFIG": f"{one}:{tmp_path / 'absent'}::{two}"}) == (one, two)
    assert default_kubeconfigs({"HOME": str(tmp_path)}) == (usual,)
    assert default_kubeconfigs({"HOME": str(tmp_path / "absent")}) == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"contexts": []}, "has no current-context"),
        ({"contexts": [5]}, "contexts must be a list of named entries"),
        ({"users": [{"name": "x", "user": "y"}]}, "users must be a list of named entries"),
        ({"users": 7}, "users must be a list of named entries"),
        ({"current-context": ["x"]}, "has no context .*; available: none"),
        ({"current-context": "x"}, "has no context 'x'; available: none"),
        (config() | {"clusters": []}, "has no cluster 'blue'; available: none"),
        (config() | {"users": [{"name": "red"}]}, "has no user 'blue'; available: red"),
        (config(server="ftp://x"), "cluster blue of .* has no server address"),
        (config({"auth-provider": {"name": "gcp"}}), "auth-provider"),
        (config({"as": "bob", "as-groups": ["admins"]}), "impersonation with groups"),
        (config({"token": "two words"}), "contains no valid token"),
        (config({"tokenFile": "absent"}), "the token file .* cannot be read"),
        (config(server="https://x", **{"certificate-authority": "absent"}), "certificate-authority of .* cannot be"),
        (config(server="https://x", **{"certificate-authority-data": "!"}), "certificate-authority of .* cannot be"),
        (config({"client-certificate-data": "QQ=="}), "must have both client-certificate and client-key"),
    ],
)
def test_a_wrong_kubeconfig_is_refused_in_one_line(content: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=message) as refused:
        headers(from_kubeconfig([written(tmp_path / "config", content)]))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("text", "message"), [("[]", "is not a kubeconfig"), ("a: [", "cannot be read")])
def test_other_files_are_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(Misconfigured, match=message) as refused:
        from_kubeconfig([tmp_path / "config"])
    assert "\n" not in str(refused.value)


def test_without_any_file_the_message_names_the_option() -> None:
    with pytest.raises(Misconfigured, match="--kubeconfigs"):
        from_kubeconfig([])
