"""Redaction: whatever stands around a secret, it is hidden, and nothing is hidden twice."""

from __future__ import annotations

from zlib import crc32

import duckdb
import msgspec

from ray_history.decoding import DECODING_ERRORS
from ray_history.history.secrets import has_hint, may_contain_secret
from ray_history.server.redaction.log_lines import RedactedLines, without_secrets, written_by_ray
from ray_history.server.redaction.rules import HIDDEN, has_secrets, is_secret, redacted
from tests.fuzz.target import target

_TEXTS = (
    b"failed: token=abc123, retrying",
    b'--password "hunter 2" --verbose',
    b"postgres://user:pw@host/db?sig=abc&x=1",
    b'{"env_vars": {"A": "x", "B": 7}, "pip": ["x"]}',
    b"env_vars={'A': 'x'}\nnext line",
    b"Authorization: Bearer abc.def\nauth: failed for user bob",
    b'runtime_env={\\"env_vars\\": {\\"KEY\\": \\"v\\"}}',
    b"AWS_SECRET_ACCESS_KEY: 'wJalr', max_tokens=7",
)
_TOKENS = (
    *(b"password=", b"env_vars", b'"env_vars":', b"{", b"}", b'\\"', b"'", b"://", b":x@", b"--token ", b"sig=", b"?"),
    *(
        b"_KEY",
        b"Bearer ",
        b"runtime_env",
        b"secret",
        b"\\u0070",
        "\u017f".encode(),
        "\u212a".encode(),
        b"\xed\xa0\x80",
        b"\xff",
    ),
)


def _texts() -> list[bytes]:
    return list(_TEXTS)


def _objects() -> list[bytes]:
    values = [
        {"env_vars": {"A": "x"}},
        {"name": "password", "value": "x"},
        ["--token", "x"],
        {"runtime_env": '{"a": 1}'},
    ]
    return [msgspec.json.encode(value) for value in values] + [msgspec.json.encode(text.decode()) for text in _TEXTS]


@target("redacted_texts", _texts, tokens=_TOKENS)
def redacted_texts(data: bytes) -> None:
    """A secret on a line of its own is hidden, whatever stands before or after it; redacting twice shows no more."""
    text = data.decode(errors="surrogateescape")
    once = redacted(text)
    assert isinstance(once, str)
    assert len(redacted(once)) <= len(once)
    torn = text[: len(text) // 2]
    for assignment in ("password=hunter2", "export API_TOKEN='hunter2'", '"secret": "hunter2"', "ftp://u:hunter2@host"):
        for around in (f"{text}\n{assignment}", f"{torn}\n{assignment}", f"{assignment}\n{text}"):
            assert "hunter2" in text or "hunter2" not in redacted(around), around


@target("redacted_objects", _objects, tokens=_TOKENS)
def redacted_objects(data: bytes) -> None:
    """Redaction keeps the shape of a value, hides all below a secret's name, and changes nothing without a hint."""
    try:
        value = msgspec.json.decode(data)
    except DECODING_ERRORS:
        return
    once = redacted(value)
    encoded = msgspec.json.encode(once)
    assert type(once) is type(value)
    if isinstance(value, dict):
        assert once.keys() == value.keys()
        assert all(
            once[key] in (HIDDEN, "", None, True, False) for key in once if is_secret(key) and _is_plain(once[key])
        )
    if isinstance(value, list):
        assert len(once) == len(value)
    if not has_secrets(msgspec.json.encode(value)):
        assert encoded == msgspec.json.encode(value)


def _is_plain(value: object) -> bool:
    return not isinstance(value, dict | list)


@target("redaction_in_sql", _texts, tokens=_TOKENS, is_linear=False, examples=60)
def redaction_in_sql(data: bytes) -> None:
    """SQL selects every text that redaction changes."""
    text = data.decode(errors="replace").replace("\0", "")
    if redacted(text) != text:
        sql = f"select {may_contain_secret('words')}, {has_hint('words')} from (select ?::varchar as words)"
        with duckdb.connect(config={"threads": 1}) as database:
            assert database.execute(sql, [text]).fetchone() == (True, True)


@target("redacted_lines", lambda: [*_objects(), b"\n".join(_TEXTS)], tokens=_TOKENS)
def redacted_lines(data: bytes) -> None:
    """Lines of logs are redacted alike wherever pieces end, line by line."""
    for name in ("runtime_env_agent.log", "events/event_GCS.log"):
        whole = b"".join(without_secrets(name, iter([data])))
        assert whole.count(b"\n") == data.count(b"\n")
        step = 1 + len(data) // (1 + crc32(data[:64]) % 31)
        redact_line = written_by_ray(name)
        assert redact_line is not None
        lines = RedactedLines(redact_line)
        pieces = [lines.feed(data[start : start + step]) for start in range(0, len(data), step)]
        assert b"".join(pieces) + lines.finish() == whole
