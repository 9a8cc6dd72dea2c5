"""`--auth token`: tokens from a file, malformed ones, and removed ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history.archive.stores import Store
from ray_history.server.auth.backends import FileTokens, NoAuth
from ray_history.server.auth.credentials import COOKIE, RAYS_COOKIE, TrustedPeers
from ray_history.server.auth.rules import RulesFile
from ray_history.server.live import LiveSettings, make_fleet
from tests.server.auth.people import ADA, SESSION, WRONG, Asking, Clock, asking, rules_file
from tests.server.auth.people import bearer as carried
from tests.support.kube_stand_in import KubeStandIn

S = f"/s/default/demo/{SESSION}/api/v0/nodes?limit=1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Iterator[Asking]:
    folder = tmp_path_factory.mktemp("tokens")
    with asking(folder, FileTokens(RulesFile(rules_file(folder)), TrustedPeers()), store) as running:
        yield running


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {ADA}"},
        {"authorization": f"bearer  {ADA}"},
        {"X-Ray-Authorization": f"Bearer {ADA}"},
        {"Authorization": "Basic dXNlcjpwYXNz", "X-Ray-Authorization": f"Bearer {ADA}"},
        {"Cookie": f"{COOKIE}={ADA}"},
        {"Cookie": f"{RAYS_COOKIE}={ADA}"},
        {"Cookie": f"{RAYS_COOKIE}={WRONG}; other=1; {COOKIE}={ADA}"},
    ],
)
def test_a_token_is_accepted_wherever_rays_clients_put_it(server: Asking, headers: dict[str, str]) -> None:
    assert server.get(S, headers).status_code == 200


def test_the_header_counts_before_the_cookie(server: Asking) -> None:
    assert server.get(S, {**carried(WRONG), "Cookie": f"{COOKIE}={ADA}"}).status_code == 403


@pytest.mark.parametrize(
    "token",
    [
        b"x" * 9000,
        b"x" * 60_000,
        b"",
        b" ",
        "ä-non-ascii-token-ünïcode".encode(),
        b"\xff\xfe\xfd" * 20,
        b"a b c d e f g h i j k l",
        b"\x01\x02\x03-control-characters",
        b"token-with-\"quotes\"-and-'more'",
        ADA.encode() + b"\x80",
        ADA.encode()[:-1],
        ADA.encode() + b"=",
        ADA.upper().encode(),
        b"../../etc/passwd",
        b"*",
    ],
    ids=lambda token: repr(token[:20]),
)
def test_hostile_tokens_are_wrong_tokens(server: Asking, token: bytes) -> None:
    for header in ("Authorization", "X-Ray-Authorization"):
        answer = server.get(S, {header: b"Bearer " + token})  # type: ignore[dict-item]
        assert answer.status_code in (400, 401, 403), answer.text
        assert b"Traceback" not in answer.content
    cookie = server.get(S, {"Cookie": f"{COOKIE}=".encode() + token.replace(b";", b"")})  # type: ignore[dict-item]
    assert cookie.status_code in (400, 401, 403)


def test_a_removed_token_is_refused_by_the_running_server(tmp_path: Path, store: Store) -> None:
    clock = Clock()
    path = rules_file(tmp_path)
    with asking(tmp_path, FileTokens(RulesFile(path, clock), TrustedPeers()), store) as server:
        assert server.get(S, carried(ADA)).status_code == 200
        rules_file(tmp_path, [])
        clock.now += 5
        assert server.get(S, carried(ADA)).status_code == 403


def test_only_viewers_of_everything_learn_why_clusters_are_missing(tmp_path: Path, store: Store) -> None:
    with KubeStandIn().running() as gone:
        (tmp_path / "kubeconfig").write_text(gone.kubeconfig())
    told = []
    for mode in (FileTokens(RulesFile(rules_file(tmp_path)), TrustedPeers()), NoAuth()):
        fleet = make_fleet(LiveSettings(kubeconfigs=str(tmp_path / "kubeconfig"), kube_namespaces="locked"))
        with asking(tmp_path, mode, store, fleet=fleet) as server:
            told.append(server.get("/clusters", carried(ADA)).headers["x-ray-history-note"])
    assert "locked" not in told[0]
    assert "some running clusters are unknown" in told[0]
    assert "locked" in told[1]
