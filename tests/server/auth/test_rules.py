"""The file of rules: its patterns and tokens, its mistakes, and its changes while the server runs."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path

import pytest

from ray_history.server.auth.rules import InvalidRules, RulesFile, parse_rules
from tests.server.auth.people import ADA, BOB, WRONG, Clock, rules_file


def test_patterns_name_namespaces_or_clusters() -> None:
    (rule,) = parse_rules(b'[{"name": "x", "namespaces": ["ml-*", "default/demo-?"]}]').rules
    assert rule.allows("ml-prod", "anything")
    assert rule.allows("default", "demo-1")
    assert not rule.allows("default", "demo-10")
    assert not rule.allows("default", "other")
    assert not rule.allows("xml-prod", "anything")


def test_a_pattern_without_a_slash_matches_whole_namespaces() -> None:
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
    ("content", "message"),
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
def test_a_mistake_in_the_file_is_named(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(content)
    with pytest.raises(InvalidRules, match=message):
        RulesFile(path)


def test_errors_in_the_file_never_show_a_token(tmp_path: Path) -> None:
    path = rules_file(tmp_path, [{"name": "x", "token": "pass word with spaces", "namespaces": []}])
    with pytest.raises(InvalidRules) as caught:
        RulesFile(path)
    assert "pass word" not in str(caught.value)


def test_a_changed_file_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_secret_that_kubernetes_replaces_through_a_link_is_read_again(tmp_path: Path) -> None:
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
def test_a_file_that_other_users_can_read_is_logged(
    mode: int, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = rules_file(tmp_path)
    os.chmod(path, mode)
    with caplog.at_level(logging.WARNING, "ray_history"):
        RulesFile(path)
    assert ("chmod 600" in caplog.text) == warned
