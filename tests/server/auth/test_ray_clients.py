"""Ray's command line with a server that requires tokens, configured as for a live cluster with tokens."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from ray_history.archive.stores import Store
from ray_history.server.auth.backends import FileTokens
from ray_history.server.auth.credentials import TrustedPeers
from ray_history.server.auth.rules import RulesFile
from tests.server.auth.people import ADA, BOB, SESSION, WRONG, Asking, asking, rules_file
from tests.support.ray_cluster import ray_binary
from tests.support.ray_versions import needs_ray

pytestmark = needs_ray("2.52", "RAY_AUTH_MODE")


@pytest.fixture(scope="module")
def server(real_ray: str, tmp_path_factory: pytest.TempPathFactory, store: Store) -> Iterator[Asking]:
    folder = tmp_path_factory.mktemp("ray-clients")
    with asking(folder, FileTokens(RulesFile(rules_file(folder)), TrustedPeers()), store) as running:
        # Ray's client waits for 30 s at most, and the session is built first.
        tasks = running.get(f"/s/default/demo/{SESSION}/api/v0/tasks", {"Authorization": f"Bearer {ADA}"})
        assert tasks.status_code == 200
        yield running


def ray(token: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    env = clean if token is None else {**clean, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    return subprocess.run([ray_binary(), *arguments], env=env, capture_output=True, text=True, timeout=120, check=False)


def test_with_the_token_the_commands_work(server: Asking) -> None:
    address = ("--address", f"{server.server.url}/s/default/demo/{SESSION}")
    listed = ray(ADA, "list", "tasks", *address, "--limit", "3", "--format", "json")
    assert listed.returncode == 0, listed.stderr
    assert len(json.loads(listed.stdout)) == 3
    assert "fx-core" in ray(ADA, "job", "list", *address).stdout
    followed = ray(ADA, "job", "logs", "fx-env", "--follow", *address)
    assert followed.returncode == 0, followed.stderr
    assert followed.stdout.strip()


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (None, "no authentication token was found"),
        (WRONG, "the authentication token is invalid or incorrect"),
    ],
)
def test_without_it_ray_says_what_is_wrong(server: Asking, token: str | None, said: str) -> None:
    address = ("--address", f"{server.server.url}/s/default/demo/{SESSION}")
    for command in (("list", "tasks"), ("job", "list")):
        done = ray(token, *command, *address)
        assert done.returncode != 0
        assert said in done.stdout + done.stderr


def test_a_session_of_others_is_not_found(server: Asking) -> None:
    done = ray(BOB, "list", "tasks", "--address", f"{server.server.url}/s/default/demo/{SESSION}")
    assert done.returncode != 0
    assert "there is no session default/demo" in done.stdout + done.stderr
