"""Answers to reviews decide who gets in: what is not exactly one is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ray_history.kube.errors import Unreachable
from ray_history.kube.reviews import TokenReview, User, is_allowed, token_review


def test_the_user_of_a_token() -> None:
    user = {"username": "ada", "uid": "7", "groups": ["a", "b"], "extra": {"key": ["value"]}}
    answer = {"status": {"authenticated": True, "user": user, "audiences": ["x"]}}
    assert token_review(answer) == TokenReview(User("ada", "7", ("a", "b"), {"key": ("value",)}), ("x",))


@pytest.mark.parametrize(
    "status", [{}, {"error": "expired"}, {"user": {"username": "ada"}}, {"authenticated": True, "user": {}}]
)
def test_a_token_without_a_user(status: dict[str, Any]) -> None:
    assert token_review({"status": status}).user is None


@pytest.mark.parametrize(
    "status",
    [None, [[]], 7, {"authenticated": "true"}, {"user": ["ada"]}, {"user": {"username": "a", "groups": "admin"}}],
)
def test_a_malformed_answer_lets_nobody_in(status: Any) -> None:
    with pytest.raises(Unreachable, match="malformed"):
        token_review({"status": status})


def test_an_action_is_allowed_only_in_so_many_words() -> None:
    assert is_allowed({"status": {"allowed": True}})
    assert not is_allowed({"status": {"allowed": True, "denied": True}})
    assert not is_allowed({"status": {"allowed": False}})
    for status in (None, {}, [], {"allowed": "true"}, {"allowed": 1}):
        with pytest.raises(Unreachable, match="malformed"):
            is_allowed({"status": status})
