"""The credentials of a request: its token, and the address of its client behind trusted proxies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.server.auth.credentials import (
    COOKIE,
    LONGEST_TOKEN,
    RAYS_COOKIE,
    Headers,
    TrustedPeers,
    bearer,
    is_token,
    without_tokens,
)


@given(st.binary(max_size=300))
def test_tokens_are_removed_from_any_headers(noise: bytes) -> None:
    headers = [
        (b"authorization", noise),
        (b"x-ray-authorization", noise),
        (b"cookie", b"a=1; " + COOKIE.encode() + b"=secret; " + noise.replace(b"secret", b"") + b"; b=2"),
        (b"accept", b"text/html"),
    ]
    found = bearer(headers)
    assert found is None or isinstance(is_token(found), bool)
    left = without_tokens(headers)
    assert b"secret" not in b"".join(value for _, value in left)
    assert {name for name, _ in left} == {b"cookie", b"accept"}
    assert b"a=1" in dict(left)[b"cookie"]


@pytest.mark.parametrize("space", [b" ", b"\t", b"\x1d", b"\x85", b"\xa0"])
def test_a_cookie_that_is_read_is_removed_whatever_white_space_precedes_it(space: bytes) -> None:
    headers = [(b"cookie", b"a=1;" + space + COOKIE.encode() + b"=secret")]
    assert bearer(headers) == "secret"
    assert without_tokens(headers) == [(b"cookie", b"a=1")]


@pytest.mark.parametrize(
    ("networks", "address", "trusted"),
    [
        ("10.0.0.0/8", "10.255.1.2", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("fd00::/8", "fd12::1%eth0", True),
        ("fd00::/8", "10.0.0.1", False),
        ("0.0.0.0/0", "unknown", False),
        ("", "127.0.0.1", False),
    ],
)
def test_which_peers_are_trusted(networks: str, address: str, trusted: bool) -> None:
    assert TrustedPeers.parse(networks).trusts(address) is trusted


@pytest.mark.parametrize(
    ("forwarded", "peer"),
    [
        ("", "10.0.0.1"),
        ("192.0.2.9", "192.0.2.9"),
        ("203.0.113.5, 192.0.2.9", "192.0.2.9"),
        ("192.0.2.9, 10.0.0.2", "192.0.2.9"),
        ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("not an address", "not an address"),
        ("192.0.2.9:4711", "192.0.2.9"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_the_client_is_the_first_address_beyond_the_trusted_proxies(forwarded: str, peer: str) -> None:
    headers = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    shown = TrustedPeers.parse("10.0.0.0/8").credentials({"headers": headers, "client": ("10.0.0.1", 1)})
    assert (shown.peer, shown.through_trusted) == (peer, True)


def test_forwarding_headers_of_other_clients_are_ignored() -> None:
    shown = TrustedPeers.parse("10.0.0.0/8").credentials(
        {"headers": [(b"x-forwarded-for", b"10.0.0.7")], "client": ("192.0.2.1", 1)}
    )
    assert (shown.peer, shown.through_trusted) == ("192.0.2.1", False)


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ([(b"authorization", b"Bearer one")], "one"),
        ([(b"authorization", b"bearer  one ")], "one"),
        ([(b"x-ray-authorization", b"Bearer one")], "one"),
        ([(b"x-ray-authorization", b"Bearer two"), (b"authorization", b"Bearer one")], "one"),
        ([(b"authorization", b"Basic b25l"), (b"x-ray-authorization", b"Bearer two")], "two"),
        ([(b"cookie", f"{RAYS_COOKIE}=rays; {COOKIE}=ours".encode())], "ours"),
        ([(b"cookie", f"{RAYS_COOKIE}=rays".encode())], "rays"),
        ([(b"cookie", b"a=1"), (b"cookie", f"{COOKIE}=ours".encode())], "ours"),
        ([(b"cookie", f"{COOKIE}=ours".encode()), (b"authorization", b"Bearer one")], "one"),
        ([(b"cookie", f"{COOKIE}=".encode())], None),
        ([(b"authorization", b"Basic b25l")], None),
        ([], None),
    ],
)
def test_the_token_is_found_in_the_order_of_ray(headers: Headers, token: str | None) -> None:
    assert bearer(headers) == token


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("abc", True),
        ("a.b-c_d~e+f/g==", True),
        ("x" * LONGEST_TOKEN, True),
        ("x" * (LONGEST_TOKEN + 1), False),
        ("", False),
        ("=", False),
        ("a b", False),
        ("a=b", False),
        ("ä", False),
    ],
)
def test_a_token_has_the_characters_of_rfc_6750(text: str, valid: bool) -> None:
    assert is_token(text) is valid
