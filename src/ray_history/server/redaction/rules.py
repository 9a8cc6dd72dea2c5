"""Secrets hidden from what is shown: values of environment variables, and whatever is named like a secret.

The archive keeps polled answers as Ray gave them; what leaves the server goes through `shown`. When in doubt a value is
hidden: text that cannot be read as a runtime environment is hidden whole, as Ray does it. Hidden are
* all values below `env_vars`, in objects and in serialized runtime environments;
* all values below a key that sounds like a secret (`password`, `HF_TOKEN`, `awsSecretAccessKey`, …), and the value of
  `{"name": <such a key>, "value": …}`;
* inside any text, the value of `KEY=value`, `--key value` and `"key": "value"` with such a key, passwords and
  signatures in URLs, and the value of `env_vars`: an object as far as it goes, a plain value to the end of its line,
  and what cannot be told apart to the end of the text.
Short words that are ordinary English too (`auth`, `pass`, `sig`, …) name a secret where something is assigned
(`pass=x`, `"auth": "x"`, `DB_PASS: x`); in `auth: failed for user bob` they do not. `-p x` is no secret: mostly a port.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import msgspec

from ray_history.history import secrets

HIDDEN = "<redacted>"
"""Ray's own word for it."""

_RUNTIME_ENV = frozenset(
    {"runtime_env", "runtimeenv", "serialized_runtime_env", "serializedruntimeenv", "runtime_env_json"}
)

_SECRET_PARTS = re.compile(secrets.PARTS, re.IGNORECASE)
_SECRET_VARIABLE = re.compile(
    "".join(f"(?<!{name})" for name in secrets.ORDINARY_VARIABLES) + secrets.VARIABLE + "(?![A-Za-z])"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_HINTS_IN_JSON = tuple(word.encode() for word in (*secrets.HINTS, "runtime_env", "runtimeenv", "\\u"))
_NAMED = re.compile(
    r"""(?<![\w.-])(?P<key>-*+[A-Za-z_][\w.-]*+)(?P<quote>\\*+["'])?(?:\s*(?P<by>[:=])\s*|[ \t]*(?=\{))"""
    r"""|(?<!\S)(?P<option>--?[A-Za-z][\w.-]*+)[ \t]+"""
)
"""A name that a value follows: `key=`, `"key": `, `key {`, `--key `."""
_VALUE = re.compile(
    r"""(?:(?:bearer|basic)\s+)?(?:\\?"(?:[^"\\]|\\.)*+(?:\\?"|$)|'[^']*+(?:'|$)|[^\s,;&"']+)""", re.IGNORECASE
)
_PASSWORD_IN_URL = re.compile(
    r"(?<![a-z0-9+.-])(?P<before>[a-z][a-z0-9+.-]*+://[^/\s:@]*+:)[^/\s@]++(?=@)", re.IGNORECASE
)
_SIGNATURE_IN_URL = re.compile(rf"""(?P<before>{secrets.SIGNATURE_IN_URL})[^\s&"'<>]++""", re.IGNORECASE)
_SAID = re.compile(r"[A-Za-z]+[.!]?|[0-9]{1,4}[.!]?")
"""A value that is a word or a count: `auth: failed`, `pass: 7`."""
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_VARIABLES = re.compile(secrets.RUNTIME_ENV_VARIABLES_PATTERN, re.IGNORECASE)
_MEMBER = re.compile(
    r"""(?P<name>(?P<q>\\*+["'])(?:(?!(?P=q))[^\\])*+(?P=q)\s*+:\s*+)(?P<quote>\\*+["'])(?:(?!(?P=quote))[^\\])*+(?P=quote)"""
)
"""A name and a plain text, as JSON has them, JSON inside a text, or Python."""
_OBJECT = re.compile(rf"\{{\s*+(?:{_MEMBER.pattern}\s*+(?:,\s*+|(?=\}})))*+\}}")
_decode_json = json.JSONDecoder().raw_decode


def has_secrets(body: bytes) -> bool:
    """Whether a JSON text may hold something to hide; saves reading most of the large ones."""
    lowered = body.lower()
    return any(hint in lowered for hint in _HINTS_IN_JSON)


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
    if _SECRET_PARTS.search(key) or _SECRET_VARIABLE.search(key):
        return True
    return any(word.lower() in secrets.WORDS for word in _WORD.findall(key))


_USUAL_LENGTH = 80
_is_known_secret = lru_cache(4096)(_sounds_secret)
"""Rows of a listing have the same names again and again."""


def _object(body: dict[str, Any]) -> dict[str, Any]:
    result = {}
    for key, value in body.items():
        name = key.lower()
        if name in secrets.RUNTIME_ENV_VARIABLES or is_secret(key):
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
    return _known_text(text) if len(text) <= _USUAL_TEXT else _looked_through(text)


def _looked_through(text: str) -> str:
    if _VARIABLES.search(text) and (whole := _of_json(text)):
        return whole
    without = _PASSWORD_IN_URL.sub(rf"\g<before>{HIDDEN}", text)
    return _without_values(_SIGNATURE_IN_URL.sub(rf"\g<before>{HIDDEN}", without))


_USUAL_TEXT = 2048
_known_text = lru_cache(2048)(_looked_through)
"""Rows of a listing tell the same again and again: where they were called, why they ended."""


def _has_hint(text: str) -> bool:
    """Most texts end here: ten times as fast as a pattern of all hints."""
    folded = text.casefold()
    return any(hint in folded for hint in secrets.HINTS)


def _of_json(text: str) -> str:
    """A text that is JSON, without its secrets; empty if it is none."""
    try:
        parsed = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return msgspec.json.encode(redacted(parsed)).decode() if isinstance(parsed, dict | list) else ""


def _without_values(text: str) -> str:
    kept = []
    position = 0
    for named in _NAMED.finditer(text):
        name = named["key"] or named["option"]
        if named.start() < position:
            continue
        if _VARIABLES.search(name):
            shape, end = _variables(text, named)
        elif is_secret(name) and (named["by"] or named["option"]):
            shape, end = _secret(text, named)
        else:
            continue
        kept += [text[position : named.end()], shape]
        position = end
    return "".join([*kept, text[position:]])


def _secret(text: str, named: re.Match[str]) -> tuple[str, int]:
    """What is shown for the value of a secret, and where it ends."""
    value = _VALUE.match(text, named.end())
    if not value or (value[0].startswith("-") and named[0].endswith("= ")):  # `password= --next`: there is none
        return "", named.end()
    if named["option"] and value[0].startswith("--"):  # `--token --password x`: the next option
        return "", named.end()
    is_bare = not named["quote"] and named["by"] == ":" and named["key"].lower() in secrets.ORDINARY_WORDS
    if is_bare and _SAID.fullmatch(value[0]):
        return "", named.end()
    return HIDDEN, value.end()


def _variables(text: str, named: re.Match[str]) -> tuple[str, int]:
    """What is shown for the value of `env_vars`, and where it ends."""
    start = named.end()
    if not text.startswith("{", start):
        line = text.find("\n", start)
        below = "\n" in named[0]  # as YAML has it; where that ends is hard to tell
        return HIDDEN if text[start:].strip() else "", len(text) if below or line < 0 else line
    if plain := _OBJECT.match(text, start):
        return _MEMBER.sub(rf"\g<name>\g<quote>{HIDDEN}\g<quote>", plain[0]), plain.end()
    try:
        parsed, end = _decode_json(text, start)
    except (ValueError, RecursionError):
        return HIDDEN, len(text)
    return msgspec.json.encode(_hidden(parsed)).decode(), end
