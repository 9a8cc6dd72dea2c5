"""`--auth token`: tokens of a file, hostile ones included, and the file as it changes."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.archive.stores import Store
from ray_history.server.auth.backends import FileTokens, NoAuth
from ray_history.server.auth.credentials import COOKIE, RAYS_COOKIE, TrustedPeers, bearer, is_token, without_tokens
from ray_history.server.auth.rules import InvalidRules, RulesFile, parse_rules
from ray_history.server.live import LiveSettings, make_fleet
from tests.server.auth.people import ADA, BOB, SESSION, WRONG, Asking, asking, rules_file
from tests.server.auth.people import bearer as carried
from tests.support.kube_stand_in import KubeStandIn

S = f"/s/default/demo/{SESSION}/api/v0/nodes?limit=1"


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


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
def test_a_token_is_found_wherever_rays_clients_put_it(server: Asking, headers: dict[str, str]) -> None:
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


@given(st.binary(max_size=300))
def test_whatever_the_headers_hold_no_token_is_left_in_them(noise: bytes) -> None:
    headers = [
        (b"authorization", noise),
        (b"x-ray-authorization", noise),
        (b"cookie", b"a=1; " + COOKIE.encode() + b"=secret; " + noise.replace(b"secret", b"") + b"; b=2"),
        (b"accept", b"text/html"),
    ]
    found = bearer(headers)
    assert found is None or isinstance(is_token(found), bool)
    left = without_tokens(headers)
    assert b"secret" not in b"".join(value for _, value in left)
    assert {name for name, _ in left} == {b"cookie", b"accept"}
    assert b"a=1" in dict(left)[b"cookie"]


def test_patterns_name_namespaces_or_clusters() -> None:
    (rule,) = parse_rules(b'[{"name": "x", "namespaces": ["ml-*", "default/demo-?"]}]').rules
    assert rule.allows("ml-prod", "anything")
    assert rule.allows("default", "demo-1")
    assert not rule.allows("default", "demo-10")
    assert not rule.allows("default", "other")
    assert not rule.allows("xml-prod", "anything")


def test_a_pattern_without_a_slash_is_about_whole_namespaces() -> None:
    (rule,) = parse_rules(b'[{"name": "x", "namespaces": ["a*"]}]').rules
    assert not rule.allows("b", "a")


def test_a_token_may_be_given_as_its_hash() -> None:
    digest = hashlib.sha256(ADA.encode()).hexdigest()
    rules = parse_rules(json.dumps([{"name": "ada", "token_sha256": digest, "namespaces": []}]).encode())
    found = rules.by_token(ADA)
    assert found is not None
    assert found.name == "ada"
    assert rules.by_token(BOB) is None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "not a list of rules"),
        ('{"name": "x"}', "not a list of rules"),
        ('[{"name": "x"}]', "namespaces"),
        ('[{"name": "x", "namespaces": ["a"], "tokn": "y"}]', "tokn"),
        ('[{"namespaces": ["a"]}]', "entry 1 needs either a name or a group"),
        ('[{"name": "x", "group": "y", "namespaces": ["a"]}]', "either a name or a group"),
        ('[{"name": "x", "token": "short", "namespaces": ["a"]}]', "at least 16 characters"),
        ('[{"name": "x", "token": "with spaces in between", "namespaces": ["a"]}]', "letters, digits"),
        ('[{"name": "x", "token_sha256": "abc", "namespaces": ["a"]}]', "64 hexadecimal digits"),
        ('[{"group": "x", "token": "long-enough-for-a-token", "namespaces": ["a"]}]', "belongs to a name"),
        ('[{"name": "x", "namespaces": ["A/B/C"]}]', "not a pattern"),
        ('[{"name": "x", "namespaces": [""]}]', "not a pattern"),
    ],
)
def test_a_wrong_file_is_told_with_what_to_change(content: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(content)
    with pytest.raises(InvalidRules, match=told):
        RulesFile(path)


def test_errors_in_the_file_never_show_a_token(tmp_path: Path) -> None:
    path = rules_file(tmp_path, [{"name": "x", "token": "pass word with spaces", "namespaces": []}])
    with pytest.raises(InvalidRules) as caught:
        RulesFile(path)
    assert "pass word" not in str(caught.value)


def test_the_file_is_read_again_when_it_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    path = rules_file(tmp_path)
    file = RulesFile(path, clock)
    assert file.current().by_token(ADA)

    rules_file(tmp_path, [{"name": "eve", "token": WRONG, "namespaces": ["*"]}])
    clock.now += 5
    assert file.current().by_token(ADA) is None
    assert file.current().by_token(WRONG)

    with caplog.at_level(logging.ERROR, "ray_history"):
        path.write_text("[{")
        clock.now += 5
        assert file.current().by_token(WRONG), "the last valid rules stay in force"
        path.unlink()
        clock.now += 5
        assert file.current().by_token(WRONG)
    assert caplog.text.count("stay in force") == 2
    assert WRONG not in caplog.text

    rules_file(tmp_path)
    clock.now += 5
    assert file.current().by_token(ADA)


def test_a_secret_that_kubernetes_swaps_by_a_link_is_read_again(tmp_path: Path) -> None:
    clock = Clock()
    for name, token in (("v1", ADA), ("v2", BOB)):
        (tmp_path / name).mkdir()
        rules_file(tmp_path / name, [{"name": "x", "token": token, "namespaces": ["*"]}])
    (tmp_path / "data").symlink_to("v1")
    file = RulesFile(tmp_path / "data" / "rules.json", clock)
    assert file.current().by_token(ADA)
    (tmp_path / "new").symlink_to("v2")
    os.replace(tmp_path / "new", tmp_path / "data")
    clock.now += 5
    assert file.current().by_token(BOB)
    assert file.current().by_token(ADA) is None


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, False), (0o644, True), (0o660, True)])
def test_a_file_that_others_can_read_is_warned_about(
    mode: int, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = rules_file(tmp_path)
    os.chmod(path, mode)
    with caplog.at_level(logging.WARNING, "ray_history"):
        RulesFile(path)
    assert ("chmod 600" in caplog.text) == warned


def test_a_removed_token_is_refused_by_the_running_server(tmp_path: Path, store: Store) -> None:
    clock = Clock()
    path = rules_file(tmp_path)
    with asking(tmp_path, FileTokens(RulesFile(path, clock), TrustedPeers()), store) as server:
        assert server.get(S, carried(ADA)).status_code == 200
        rules_file(tmp_path, [])
        clock.now += 5
        assert server.get(S, carried(ADA)).status_code == 403


def test_why_running_clusters_are_missing_is_told_to_those_who_may_see_everything(tmp_path: Path, store: Store) -> None:
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
