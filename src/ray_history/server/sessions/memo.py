"""What was once worked out about an open session, for as long as it stays open: its tables do not change."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from ray_history.server.sessions.endpoint import Asked
from ray_history.server.sessions.manager import OpenSession

_Result = TypeVar("_Result")


def remembered(work: Callable[[Asked], _Result]) -> Callable[[Asked], _Result]:
    """The same answer again for whoever asks the same about the same session."""
    known: WeakKeyDictionary[OpenSession, dict[tuple[int | None, bool], _Result]] = WeakKeyDictionary()

    @wraps(work)
    def answer(asked: Asked) -> _Result:
        if asked.view.at is not None:
            return work(asked)
        of_session = known.setdefault(asked.open, {})
        key = asked.open.ended_ns, asked.redact
        if key not in of_session:
            of_session[key] = work(asked)
        return of_session[key]

    return answer
