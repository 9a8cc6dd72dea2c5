"""Names that become parts of keys."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.archive.names import Component, InvalidName, dns_name, hex_id, session_time

HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "a\\b",
    "a\0b",
    "a\n",
    "session\n",
    "%2e%2e",
    "..%2f",
    "\uff0e\uff0e",
    "a b",
    "naïve",
    "٣",
    "x" * 256,
    "~root",
    "$(id)",
    "C:",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidName, match="not a safe name"):
        Component(text)


@given(st.text(max_size=300))
def test_whatever_is_accepted_is_one_plain_component(text: str) -> None:
    try:
        component = Component(text)
    except InvalidName:
        return
    assert component == text
    assert component.isascii()
    assert 0 < len(component) <= 255
    assert not set(component) & set("/\\\0 %\n\r\t:")
    assert component not in (".", "..")


@given(st.from_regex(r"[A-Za-z0-9._-]{1,255}", fullmatch=True).filter(lambda text: text not in (".", "..")))
def test_every_name_of_the_plain_alphabet_is_accepted(text: str) -> None:
    assert Component(text) == text


@pytest.mark.parametrize("text", ["raycluster-sample", "a", "a.b-c.d", " padded ", "9"])
def test_kubernetes_names_are_accepted(text: str) -> None:
    assert dns_name(text, "cluster") == text.strip()


@pytest.mark.parametrize("text", ["", "Upper", "under_score", "-a", "a-", "a..b", ".a", "x" * 254, "a/b"])
def test_other_names_are_refused_with_a_hint(text: str) -> None:
    with pytest.raises(InvalidName, match=r"cluster .* is not a valid name: use lower-case"):
        dns_name(text, "cluster")


@pytest.mark.parametrize(
    ("text", "hexed"),
    [
        ("AQAAAA==", "01000000"),
        ("AgAAAA==", "02000000"),
        ("ABCDEF01", "abcdef01"),
        ("AQAAAA_==", "AQAAAA_=="),
        ("7", "7"),
        ("job-1", "job-1"),
        ("job1", base64.urlsafe_b64decode("job1").hex()),
        ("AQAA\nAA==", "01000000"),
        ("////", "ffffff"),
        ("é", "é"),
    ],
)
def test_ids_become_hex_as_the_go_collector_makes_them(text: str, hexed: str) -> None:
    assert hex_id(text) == hexed


@given(st.binary(min_size=1, max_size=40))
def test_base64_of_any_bytes_becomes_their_hex(raw: bytes) -> None:
    text = base64.b64encode(raw).decode()
    if not set(text.rstrip("=")) <= set("0123456789abcdefABCDEF"):
        assert hex_id(text) == raw.hex()


@given(st.text())
def test_no_text_makes_the_id_conversion_fail(text: str) -> None:
    assert isinstance(hex_id(text), str)


@pytest.mark.parametrize(
    ("session", "seconds"),
    [
        ("session_2024-05-15_10-30-55_123456", 1715769055),
        ("session_2024-05-15_10-30-55_123456_1", 1715769055),
        ("session_2026-11-15_20-00-55_739110_9771", 1794772855),
    ],
)
def test_a_session_name_contains_its_start_time(session: str, seconds: int) -> None:
    moment = session_time(session)
    assert moment is not None
    assert moment.seconds == seconds


def test_a_session_time_is_shown_as_upstream_shows_it() -> None:
    moment = session_time("session_2024-05-15_10-30-55_123456")
    assert moment is not None
    assert moment.iso == "2024-05-15T10:30:55Z"


@pytest.mark.parametrize(
    "session", ["", "session-123", "session_2024-05-15_10-30-55", "session_2026-02-30_10-30-55_123456", "x_session_"]
)
def test_a_name_without_time_has_no_start_time(session: str) -> None:
    assert session_time(session) is None
