"""TokenReview and SubjectAccessReview: the user of a token, and whether they are allowed an action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class User:
    """A user of the API server."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenReview:
    """The answer to a TokenReview."""

    user: User | None
    """None if the token is not accepted."""
    audiences: tuple[str, ...] = ()
    """Those of the requested audiences for which the token is valid."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Attributes:
    """An action."""

    verb: str
    resource: str
    namespace: str = ""
    """Empty for all namespaces."""
    name: str = ""
    """Empty for all objects."""
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
    user = status.get("user") or {}
    if status.get("authenticated") is not True or not user.get("username"):
        return TokenReview(None, audiences, str(status.get("error", "")))
    extra = {key: tuple(values) for key, values in (user.get("extra") or {}).items()}
    groups = tuple(user.get("groups") or ())
    return TokenReview(User(user["username"], user.get("uid", ""), groups, extra), audiences)


def access_review_body(user: User, requested: Attributes) -> dict[str, Any]:
    attributes = {
        "verb": requested.verb,
        "group": requested.group,
        "resource": requested.resource,
        "subresource": requested.subresource,
        "namespace": requested.namespace,
        "name": requested.name,
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
