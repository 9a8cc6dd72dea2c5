"""TokenReview and SubjectAccessReview: the user of a token, and whether they are allowed an action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from .errors import Unreachable

T = TypeVar("T")


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


class _UserInfo(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenReviewStatus(msgspec.Struct):
    authenticated: bool = False
    user: _UserInfo | None = None
    audiences: list[str] | None = None
    error: str = ""


class _AccessReviewStatus(msgspec.Struct):
    allowed: bool
    denied: bool = False


def token_review(answer: Mapping[str, Any]) -> TokenReview:
    """The result of a TokenReview; Unreachable if the answer is not one."""
    status = _status(answer, _TokenReviewStatus)
    audiences, user = tuple(status.audiences or ()), status.user
    if not status.authenticated or user is None or not user.username:
        return TokenReview(None, audiences, status.error)
    extra = {key: tuple(values) for key, values in (user.extra or {}).items()}
    return TokenReview(User(user.username, user.uid, tuple(user.groups or ()), extra), audiences)


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
    """The result of a SubjectAccessReview; Unreachable if the answer is not one."""
    status = _status(answer, _AccessReviewStatus)
    return status.allowed and not status.denied


def _status(answer: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(answer.get("status"), kind)
    except msgspec.ValidationError as error:
        raise Unreachable(f"the API server's answer to a review is malformed: {error}") from None
