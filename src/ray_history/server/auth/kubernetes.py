"""`kubernetes`: the API server identifies tokens (TokenReview) and decides on access (SubjectAccessReview).

Answers are cached for a short time by the hash of the token, refusals for a shorter one. Concurrent requests for the
same answer share one call. When the API server cannot be reached the answer is 503, never a guess.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ray_history.kube import Attributes, KubeError, Kubernetes, User
from ray_history.server.http.responses import ApiError

from .attempts import Attempts, TooManyWaiting, Turns
from .backends import NOT_ACCEPTED, NotAuthenticated, Tokens, required_token
from .credentials import Credentials, TrustedPeers, token_hash
from .viewer import Viewer

logger = logging.getLogger(__name__)

_REFUSED_FOR = 10.0
_MAX_CACHED = 20_000
_REMEMBERED_FOR = 3600.0
"""A token that was accepted within this time is checked at once, whatever else its peer sends."""
_WRONG_TAKES = 0.2
"""Seconds for which a wrong token keeps the turn of a peer with many of them: 20 reviews per second at most."""
_ACCESS = re.compile(r"(?P<verb>[a-z]+) (?P<resource>[a-z]+)(?:\.(?P<group>[a-z0-9.-]+))?(?:/(?P<sub>[a-z]+))?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

Answer = TypeVar("Answer")


def parse_access(text: str) -> Attributes:
    """Parse `VERB RESOURCE[.GROUP][/SUBRESOURCE]`, the form of `kubectl auth can-i`; raises ValueError."""
    found = _ACCESS.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not of the form VERB RESOURCE[.GROUP][/SUBRESOURCE]")
    return Attributes(found["verb"], found["resource"], group=found["group"] or "", subresource=found["sub"] or "")


def _tokens(access: Attributes, audiences: tuple[str, ...]) -> Tokens:
    """What to sign in with; a token for an audience must be created for it."""
    right = f"{access.verb} {access.resource}" + (f".{access.group}" if access.group else "")
    return Tokens(
        "Paste a Kubernetes token: your own, or that of a service account.",
        "If you may create tokens for a service account, create one with:",
        " ".join(
            ["kubectl create token NAME --namespace NAMESPACE --duration 12h", *(f"--audience {a}" for a in audiences)]
        ),
        f"You will see the namespaces in which your token may {right}.",
    )


class AnswerCache(Generic[Answer]):
    """Answers that expire. Concurrent requests for the same answer share one call."""

    def __init__(self, seconds: Callable[[Answer], float], clock: Callable[[], float]) -> None:
        self._seconds, self._clock = seconds, clock
        self._answers: OrderedDict[Hashable, tuple[float, Answer]] = OrderedDict()
        self._pending: dict[Hashable, asyncio.Task[Answer]] = {}

    def get(self, key: Hashable) -> Answer | None:
        until, answer = self._answers.get(key, (0.0, None))
        return answer if self._clock() < until else None

    async def ask(self, key: Hashable, question: Callable[[], Awaitable[Answer]]) -> Answer:
        cached = self.get(key)
        if cached is not None:
            return cached
        pending = self._pending.get(key)
        if pending is None:
            pending = self._pending[key] = asyncio.ensure_future(self._fetch(key, question))
            pending.add_done_callback(lambda _: self._pending.pop(key, None))
        # A client that disconnects must not cancel the call for other waiters.
        return await asyncio.shield(pending)

    async def _fetch(self, key: Hashable, question: Callable[[], Awaitable[Answer]]) -> Answer:
        answer = await question()
        self.store(key, answer)
        return answer

    def store(self, key: Hashable, answer: Answer) -> None:
        self._answers[key] = (self._clock() + self._seconds(answer), answer)
        self._answers.move_to_end(key)
        while len(self._answers) > _MAX_CACHED:
            self._answers.popitem(last=False)


@dataclass(frozen=True, slots=True)
class _Identity:
    """The user of a token; None if the API server does not accept it."""

    user: User | None


class KubernetesTokens:
    """Authentication with Kubernetes tokens, access by Kubernetes RBAC."""

    def __init__(
        self,
        api: Kubernetes,
        peers: TrustedPeers,
        access: Attributes,
        *,
        audiences: tuple[str, ...] = (),
        each_cluster: bool = False,
        seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self.peers, self._access, self._audiences = api, peers, access, audiences
        self._each_cluster = each_cluster
        self.tokens = _tokens(access, audiences)
        refused = min(_REFUSED_FOR, seconds)
        self._identities: AnswerCache[_Identity] = AnswerCache(
            lambda identity: seconds if identity.user else refused, clock
        )
        self._decisions: AnswerCache[bool] = AnswerCache(lambda allowed: seconds if allowed else refused, clock)
        self._accepted: AnswerCache[bool] = AnswerCache(lambda _: _REMEMBERED_FOR, clock)
        self._failures, self._turns = Attempts(most=100, clock=clock), Turns()

    async def authenticate(self, credentials: Credentials) -> Viewer:
        token, peer = required_token(credentials), credentials.peer
        digest = token_hash(token)
        is_known = self._identities.get(digest) is not None or self._accepted.get(digest) is not None
        if is_known or not self._failures.wait(peer):
            identity = await self._identity(digest, token)
        else:
            identity = await self._identity_in_turn(digest, token, peer)
        if identity.user is None:
            self._failures.failed(peer)
            raise NotAuthenticated(NOT_ACCEPTED, has_credentials=True)
        self._accepted.store(digest, True)
        return self._viewer(digest, identity.user)

    async def _identity(self, digest: bytes, token: str) -> _Identity:
        return await _or_unavailable(self._identities.ask(digest, lambda: self._review(token)))

    async def _identity_in_turn(self, digest: bytes, token: str, peer: str) -> _Identity:
        try:
            async with self._turns.take(peer):
                identity = await self._identity(digest, token)
                if identity.user is None:
                    await asyncio.sleep(_WRONG_TAKES)
                return identity
        except TooManyWaiting:
            raise ApiError(429, f"too many wrong tokens from {peer}; try again in a few seconds") from None

    async def close(self) -> None:
        await self._api.close()

    async def _review(self, token: str) -> _Identity:
        review = await self._api.create_token_review(token, self._audiences)
        if self._audiences and not set(self._audiences) & set(review.audiences):
            return _Identity(None)  # an API server without support for audiences answers without any
        return _Identity(review.user)

    def _viewer(self, digest: bytes, user: User) -> Viewer:
        async def may(namespace: str = "", cluster: str = "") -> bool:
            wanted = Attributes(
                self._access.verb,
                self._access.resource,
                namespace,
                cluster,
                self._access.group,
                self._access.subresource,
            )
            return await _or_unavailable(
                self._decisions.ask(
                    (digest, namespace, cluster), lambda: self._api.create_subject_access_review(user, wanted)
                )
            )

        async def can_see(namespace: str, cluster: str) -> bool:
            if await may():
                return True
            if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(cluster):
                return False  # not a name that Kubernetes allows
            return await may(namespace) or (self._each_cluster and await may(namespace, cluster))

        return Viewer(user.name, can_see)


async def _or_unavailable(answer: Awaitable[Answer]) -> Answer:
    try:
        return await answer
    except KubeError as error:
        logger.error("access cannot be checked: %s", error)
        raise ApiError(
            503, "access cannot be checked: the Kubernetes API server cannot be reached; try again later"
        ) from None
