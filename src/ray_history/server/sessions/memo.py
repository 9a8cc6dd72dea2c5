"""Results that are computed once for an open session: its tables do not change while it is open."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.open_session import OpenSession

_Result = TypeVar("_Result")


def cached_per_session(work: Callable[[SessionRequest], _Result]) -> Callable[[SessionRequest], _Result]:
    """Cache the results for whole sessions; those for a moment (`at=`) are computed each time."""
    results: WeakKeyDictionary[OpenSession, dict[tuple[int | None, bool], _Result]] = WeakKeyDictionary()

    @wraps(work)
    def answer(request: SessionRequest) -> _Result:
        if request.view.at is not None:
            return work(request)
        of_session = results.setdefault(request.open, {})
        key = request.open.ended_ns, request.redact
        if key not in of_session:
            of_session[key] = work(request)
        return of_session[key]

    return answer
