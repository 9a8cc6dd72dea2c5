"""The lock that lets parties take turns."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from ray_history.history.engine import Cancelled
from ray_history.index.locks import CancelToken, FairLock
from tests.support.waiting import until


def order_of_turns(parties: str) -> str:
    """The parties in the order in which they get the lock, if they ask for it in this order."""
    lock, turns, threads = FairLock(), list[str](), list[threading.Thread]()

    def take(party: str) -> None:
        with lock.turn(CancelToken(), party):
            turns.append(party)

    with lock.turn(CancelToken(), "x"):
        for number, party in enumerate(parties, 1):
            threads.append(threading.Thread(target=take, args=[party]))
            threads[-1].start()
            until(lambda number=number: len(lock._waiting) == number)
    for thread in threads:
        thread.join()
    return "".join(turns)


def test_parties_take_turns() -> None:
    assert order_of_turns("aaaab") == "abaaa"
    assert order_of_turns("aabbc") == "abcab"
    assert order_of_turns("xa") == "ax"


def test_who_is_cancelled_does_not_wait() -> None:
    lock, cancel = FairLock(), CancelToken()

    def wait() -> None:
        with lock.turn(cancel):
            raise AssertionError

    with ThreadPoolExecutor(1) as threads:
        with lock.turn(CancelToken()):
            assert not lock.is_contended
            waiting = threads.submit(wait)
            until(lambda: lock.is_contended)
            cancel.cancel()
            with pytest.raises(Cancelled):
                waiting.result(60)
            assert not lock.is_contended
        with lock.turn(CancelToken()):
            pass
