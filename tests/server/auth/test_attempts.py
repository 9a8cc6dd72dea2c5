"""Failed sign-in attempts: how many are allowed, for how long, and who counts as one peer."""

from __future__ import annotations

import asyncio

import pytest

from ray_history.server.auth.attempts import Attempts, TooManyWaiting, Turns
from tests.server.auth.people import Clock


def test_attempts_are_forgotten_after_a_while() -> None:
    clock = Clock()
    attempts = Attempts(most=2, seconds=60, clock=clock)
    attempts.failed("192.0.2.1")
    assert attempts.wait("192.0.2.1") == 0
    attempts.failed("192.0.2.1")
    assert attempts.wait("192.0.2.1") == 60
    assert attempts.wait("192.0.2.2") == 0
    clock.now += 61
    assert attempts.wait("192.0.2.1") == 0


def test_addresses_of_one_ipv6_network_are_one_peer() -> None:
    attempts = Attempts(most=1)
    attempts.failed("2001:db8::1")
    assert attempts.wait("2001:db8::ffff")
    assert not attempts.wait("2001:db8:0:1::1")


def test_an_ipv4_address_in_ipv6_form_is_a_peer_of_its_own() -> None:
    attempts = Attempts(most=1)
    attempts.failed("::ffff:192.0.2.1")
    assert attempts.wait("::ffff:192.0.2.1")
    assert not attempts.wait("::ffff:192.0.2.2")


def test_a_peer_without_an_address_is_counted_by_its_name() -> None:
    attempts = Attempts(most=1)
    attempts.failed("unknown")
    assert attempts.wait("unknown")
    assert not attempts.wait("192.0.2.1")


def test_the_peers_that_failed_longest_ago_are_dropped() -> None:
    attempts = Attempts(most=1)
    for number in range(10_001):
        attempts.failed(f"peer {number}")
    assert not attempts.wait("peer 0")
    assert attempts.wait("peer 1")
    assert attempts.wait("peer 10000")


def test_the_turns_of_a_peer_are_limited_and_so_are_those_who_wait_for_one() -> None:
    async def use(turns: Turns, peer: str, ready: asyncio.Event) -> None:
        async with turns.take(peer):
            await ready.wait()

    async def main() -> None:
        turns, ready = Turns(most=2, waiting=3), asyncio.Event()
        users = [asyncio.create_task(use(turns, "192.0.2.1", ready)) for _ in range(5)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyWaiting):
            await use(turns, "192.0.2.1", ready)
        other = asyncio.create_task(use(turns, "192.0.2.2", ready))
        ready.set()
        await asyncio.gather(*users, other)
        await use(turns, "192.0.2.1", ready)

    asyncio.run(main())


def test_nobody_waits_for_a_turn_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray_history.server.auth.attempts._PATIENCE", 0.01)

    async def main() -> None:
        turns = Turns(most=1)
        async with turns.take("192.0.2.1"):
            with pytest.raises(TooManyWaiting):
                async with turns.take("192.0.2.1"):
                    raise AssertionError
        async with turns.take("192.0.2.1"):
            pass

    asyncio.run(main())
