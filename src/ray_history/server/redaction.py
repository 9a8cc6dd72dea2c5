"""Secrets hidden from what is shown: values of environment variables, and whatever is named like a secret.

The archive keeps polled answers as Ray gave them; what leaves the server goes through `shown`. When in doubt a value is
hidden: text that cannot be read as a runtime environment is hidden whole, as Ray does it. Hidden are
* all values below `env_vars`, in objects and in serialized runtime environments;
* all values below a key that sounds like a secret (`password`, `HF_TOKEN`, `awsSecretAccessKey`, …), and the value of
  `{"name": <such a key>, "value": …}`;
* inside any text, the value of `KEY=value`, `--key value` and `"key": "value"` with such a key, passwords in URLs, and
  all that follows the word `env_vars`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from .handling import Asked

HIDDEN = "<redacted>"
"""Ray's own word for it."""

_ENVIRONMENT = frozenset({"env_vars", "envvars"})
_RUNTIME_ENV = frozenset(
    {"runtime_env", "runtimeenv", "serialized_runtime_env", "serializedruntimeenv", "runtime_env_json"}
)

_SECRET_WORDS = frozenset({"auth", "authorization", "bearer", "cookie", "jwt", "passphrase", "pwd", "token"})
_SECRET_PARTS = re.compile(
    "passw(or)?d|secret|credential|"
    "(api|access|account|auth|encryption|private|secret|shared|signing|ssh|storage)[-_. ]?key|auth[-_. ]?token",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_HINTS = (
    *("auth", "bearer", "cookie", "cred", "env_vars", "envvars", "jwt", "key", "pass", "pwd", "secret", "token"),
    "://",
)
"""What every text with something to hide contains."""
_HINTS_IN_JSON = tuple(word.encode() for word in (*_HINTS, "runtime_env", "runtimeenv", "\\u"))
_NAMED = re.compile(
    r"""(?<![\w.-])(?P<key>-*+[A-Za-z_][\w.-]*+)(?:\\?["'])?\s*[:=]\s*|(?<!\S)(?P<option>--?[A-Za-z][\w.-]*+)[ \t]+"""
)
"""A name that a value follows: `key=`, `"key": `, `--key `."""
_VALUE = re.compile(
    r"""(?:(?:bearer|basic)\s+)?(?:\\?"(?:[^"\\]|\\.)*+(?:\\?"|$)|'[^']*+(?:'|$)|[^\s,;&"']+)""", re.IGNORECASE
)
_PASSWORD_IN_URL = re.compile(
    r"(?<![a-z0-9+.-])(?P<before>[a-z][a-z0-9+.-]*+://[^/\s:@]*+:)[^/\s@]++(?=@)", re.IGNORECASE
)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_VARIABLES = re.compile("env_?vars", re.IGNORECASE)


def has_secrets(body: bytes) -> bool:
    """Whether a JSON text may hold something to hide; saves reading most of the large ones."""
    lowered = body.lower()
    return any(hint in lowered for hint in _HINTS_IN_JSON)


def shown(asked: Asked, value: Any) -> Any:
    """What may be shown of a body, to whoever asked."""
    return redacted(value) if asked.redact else value


def redacted(value: Any) -> Any:
    """A copy of a JSON value without secrets."""
    if isinstance(value, dict):
        return _object(value)
    if isinstance(value, list):
        return _list(value)
    if isinstance(value, str):
        return _text(value)
    return value


def is_secret(key: str) -> bool:
    """Whether a name sounds like that of a secret. Counts are none: `max_tokens`."""
    return _is_known_secret(key) if len(key) <= _USUAL_LENGTH else _sounds_secret(key)


def _sounds_secret(key: str) -> bool:
    if _SECRET_PARTS.search(key):
        return True
    return any(word.lower() in _SECRET_WORDS for word in _WORD.findall(key))


_USUAL_LENGTH = 80
_is_known_secret = lru_cache(4096)(_sounds_secret)
"""Rows of a listing have the same names again and again."""


def _object(body: dict[str, Any]) -> dict[str, Any]:
    result = {}
    for key, value in body.items():
        name = key.lower()
        if name in _ENVIRONMENT or is_secret(key):
            result[key] = _hidden(value)
        elif name in _RUNTIME_ENV and isinstance(value, str):
            result[key] = _runtime_env(value)
        else:
            result[key] = redacted(value)
    for name in ("name", "key"):
        if "value" in result and isinstance(body.get(name), str) and is_secret(body[name]):
            result["value"] = _hidden(body["value"])
    return result


def _list(items: list[Any]) -> list[Any]:
    """Items one by one; after an item `--password` alone, as command lines have it, the next is the value."""
    result = []
    is_value = False
    for item in items:
        result.append(_hidden(item) if is_value else redacted(item))
        is_value = isinstance(item, str) and _OPTION.fullmatch(item) is not None and is_secret(item)
    return result


def _hidden(value: Any) -> Any:
    """Nothing but the shape: keys stay, and what says nothing."""
    if isinstance(value, dict):
        return {key: _hidden(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_hidden(inner) for inner in value]
    return value if value is None or value == "" or isinstance(value, bool) else HIDDEN


def _runtime_env(serialized: str) -> str:
    if not serialized:
        return serialized
    try:
        parsed = msgspec.json.decode(serialized)
    except (msgspec.DecodeError, RecursionError):
        return HIDDEN
    if not isinstance(parsed, dict):
        return HIDDEN
    return msgspec.json.encode(redacted(parsed)).decode() if _has_hint(serialized) else serialized


def _text(text: str) -> str:
    if not text or not _has_hint(text):
        return text
    variables = _VARIABLES.search(text)
    if variables:
        return _with_variables(text, variables)
    return _without_values(_PASSWORD_IN_URL.sub(rf"\g<before>{HIDDEN}", text))


def _has_hint(text: str) -> bool:
    """Most texts end here: ten times as fast as a pattern of all hints."""
    folded = text.casefold()
    return any(hint in folded for hint in _HINTS)


def _with_variables(text: str, variables: re.Match[str]) -> str:
    """Text that mentions environment variables: JSON without their values, other text cut there."""
    try:
        parsed = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return _text(text[: variables.start()]) + variables[0] + HIDDEN
    return msgspec.json.encode(redacted(parsed)).decode() if isinstance(parsed, dict | list) else HIDDEN


def _without_values(text: str) -> str:
    kept = []
    position = 0
    for named in _NAMED.finditer(text):
        if named.start() < position or not is_secret(named["key"] or named["option"]):
            continue
        value = _VALUE.match(text, named.end())
        if value and not (value[0].startswith("-") and named[0].endswith("= ")):  # `password= --next`: there is none
            kept += [text[position : named.end()], HIDDEN]
            position = value.end()
    return "".join([*kept, text[position:]])
