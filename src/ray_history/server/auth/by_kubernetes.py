"""`kubernetes`: the API server says whom a token belongs to (TokenReview) and what they may (SubjectAccessReview).

Answers are kept for a short time by the hash of the token; refusals shorter. Whoever asks for the same meanwhile waits
for the one answer that is on its way. When the API server cannot be asked the answer is 503: never a guess.
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

from .attempts import Attempts
from .backends import NOT_ACCEPTED, NotKnown, Tokens, usable
from .credentials import Credentials, Peers, token_hash
from .viewer import Viewer

logger = logging.getLogger(__name__)

_REFUSED_FOR = 10.0
_MOST_KEPT = 20_000
_ACCESS = re.compile(r"(?P<verb>[a-z]+) (?P<resource>[a-z]+)(?:\.(?P<group>[a-z0-9.-]+))?(?:/(?P<sub>[a-z]+))?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

Answer = TypeVar("Answer")


def parse_access(text: str) -> Attributes:
    """`VERB RESOURCE[.GROUP][/SUBRESOURCE]`, as `kubectl auth can-i` takes it; ValueError if it is none."""
    found = _ACCESS.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not understood: write VERB RESOURCE[.GROUP][/SUBRESOURCE]")
    return Attributes(found["verb"], found["resource"], group=found["group"] or "", subresource=found["sub"] or "")


def _tokens(access: Attributes, audiences: tuple[str, ...]) -> Tokens:
    """What to sign in with; tokens for an audience must be made for it."""
    right = f"{access.verb} {access.resource}" + (f".{access.group}" if access.group else "")
    return Tokens(
        "Paste a token of Kubernetes: your own, or that of a service account.",
        "Whoever may make tokens for a service account makes one with:",
        " ".join(
            ["kubectl create token NAME --namespace NAMESPACE --duration 12h", *(f"--audience {a}" for a in audiences)]
        ),
        f"You will see the namespaces in which your token may {right}.",
    )


class Kept(Generic[Answer]):
    """Answers for a while; those who ask for one that is on its way wait for it."""

    def __init__(self, seconds: Callable[[Answer], float], clock: Callable[[], float]) -> None:
        self._seconds, self._clock = seconds, clock
        self._answers: OrderedDict[Hashable, tuple[float, Answer]] = OrderedDict()
        self._coming: dict[Hashable, asyncio.Task[Answer]] = {}

    def get(self, key: Hashable) -> Answer | None:
        until, answer = self._answers.get(key, (0.0, None))
        return answer if self._clock() < until else None

    async def ask(self, key: Hashable, question: Callable[[], Awaitable[Answer]]) -> Answer:
        kept = self.get(key)
        if kept is not None:
            return kept
        coming = self._coming.get(key)
        if coming is None:
            coming = self._coming[key] = asyncio.ensure_future(self._asked(key, question))
            coming.add_done_callback(lambda _: self._coming.pop(key, None))
        return await asyncio.shield(coming)

    async def _asked(self, key: Hashable, question: Callable[[], Awaitable[Answer]]) -> Answer:
        answer = await question()
        self._answers[key] = (self._clock() + self._seconds(answer), answer)
        self._answers.move_to_end(key)
        while len(self._answers) > _MOST_KEPT:
            self._answers.popitem(last=False)
        return answer


@dataclass(frozen=True, slots=True)
class _Known:
    """The answer about a token."""

    user: User | None


class ByKubernetes:
    """Tokens of Kubernetes, and its rules."""

    def __init__(
        self,
        api: Kubernetes,
        peers: Peers,
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
        self._tokens: Kept[_Known] = Kept(lambda known: seconds if known.user else refused, clock)
        self._decisions: Kept[bool] = Kept(lambda allowed: seconds if allowed else refused, clock)
        self._wrong = Attempts(most=100, clock=clock)

    async def known(self, shown: Credentials) -> Viewer:
        token = usable(shown)
        digest = token_hash(token)
        if self._tokens.get(digest) is None and (wait := self._wrong.wait(shown.peer)):
            raise ApiError(429, f"too many wrong tokens came from {shown.peer}; try again in {wait:.0f} s")
        found = await self._told(self._tokens.ask(digest, lambda: self._review(token)))
        if found.user is None:
            self._wrong.failed(shown.peer)
            raise NotKnown(NOT_ACCEPTED, shown=True)
        return self._viewer(digest, found.user)

    async def close(self) -> None:
        await self._api.close()

    async def _review(self, token: str) -> _Known:
        review = await self._api.create_token_review(token, self._audiences)
        if self._audiences and not set(self._audiences) & set(review.audiences):
            return _Known(None)  # an API server that knows no audiences answers without any
        return _Known(review.user)

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
            return await self._told(
                self._decisions.ask(
                    (digest, namespace, cluster), lambda: self._api.create_subject_access_review(user, wanted)
                )
            )

        async def sees(namespace: str, cluster: str) -> bool:
            if await may():
                return True
            if not _NAME.fullmatch(namespace) or not _NAME.fullmatch(cluster):
                return False  # Kubernetes has no such names
            return await may(namespace) or (self._each_cluster and await may(namespace, cluster))

        return Viewer(user.name, sees)

    async def _told(self, answer: Awaitable[Answer]) -> Answer:
        try:
            return await answer
        except KubeError as error:
            logger.error("who may see what cannot be asked: %s", error)
            raise ApiError(503, "the Kubernetes API server cannot be asked who may see this; try again later") from None
