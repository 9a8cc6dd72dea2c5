"""Whom a token belongs to, and what they may: the two questions that Kubernetes answers for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class User:
    """Somebody, as the API server knows them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenReview:
    """The answer about a token."""

    user: User | None
    """None when nobody is known by it."""
    audiences: tuple[str, ...] = ()
    """Those asked for that it is meant for."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Attributes:
    """What somebody wants to do."""

    verb: str
    resource: str
    namespace: str = ""
    """Empty: in all of them."""
    name: str = ""
    """Empty: with all of them."""
    group: str = ""
    subresource: str = ""


def token_review_body(token: str, audiences: Sequence[str]) -> dict[str, Any]:
    spec: dict[str, Any] = {"token": token}
    if audiences:
        spec["audiences"] = list(audiences)
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}


def token_review(answer: Mapping[str, Any]) -> TokenReview:
    status = answer.get("status") or {}
    audiences = tuple(status.get("audiences") or ())
    told = status.get("user") or {}
    if status.get("authenticated") is not True or not told.get("username"):
        return TokenReview(None, audiences, str(status.get("error", "")))
    user = User(
        told["username"],
        told.get("uid", ""),
        tuple(told.get("groups") or ()),
        {key: tuple(values) for key, values in (told.get("extra") or {}).items()},
    )
    return TokenReview(user, audiences)


def access_review_body(user: User, wanted: Attributes) -> dict[str, Any]:
    attributes = {
        "verb": wanted.verb,
        "group": wanted.group,
        "resource": wanted.resource,
        "subresource": wanted.subresource,
        "namespace": wanted.namespace,
        "name": wanted.name,
    }
    spec = {
        "resourceAttributes": {key: value for key, value in attributes.items() if value},
        "user": user.name,
        "groups": list(user.groups),
        "uid": user.uid,
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def is_allowed(answer: Mapping[str, Any]) -> bool:
    status = answer.get("status") or {}
    return status.get("allowed") is True and status.get("denied") is not True
