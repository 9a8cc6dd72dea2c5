"""Redaction of secrets: values of environment variables, and of everything with the name of a secret.

The archive stores polled answers as Ray sent them; redaction applies to everything that leaves the server. In doubt a
value is redacted: text that is not a valid runtime environment is redacted completely, as Ray does it. Redacted are
* all values below `env_vars`, in objects and in serialized runtime environments, except for variables that Ray sets;
* all values below a key with the name of a secret (`password`, `HF_TOKEN`, `awsSecretAccessKey`, …), and the value in
  `{"name": <such a key>, "value": …}`;
* inside any text, the value in `KEY=value`, `--key value` and `"key": "value"` with such a key, passwords and
  signatures in URLs, and the value of `env_vars`: a complete object, a plain value to the end of its line, or, if
  neither can be recognized, the rest of the text.
Short words that are also ordinary English (`auth`, `pass`, `sig`, …) name a secret only in assignments (`pass=x`,
`"auth": "x"`, `DB_PASS: x`), not in `auth: failed for user bob`. `-p x` is not redacted: it is mostly a port.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import msgspec

from ray_history.decoding import DECODING_ERRORS
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

# Patterns without case also match the two letters whose lower case is `s` and `k`.
_HINTS_IN_JSON = tuple(
    word.encode() for word in (*secrets.HINTS, "runtime_env", "runtimeenv", "\\u", "\u017f", "\u212a")
)
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
_CONTINUED = re.compile(r"""["'](?:\s*[:=]\s*|(?=\w))|\w(?=["'])""")
"""What does not follow a value in quotes: that was the name of another one (`password:` and, on the next line,
`"token": "x"`), or its last quote was the first of another (`password: 'torn` and then `token='x'`)."""
_ORDINARY_VALUE = re.compile(r"[A-Za-z]+[.!]?|[0-9]{1,4}[.!]?")
"""A value that is a word or a count: `auth: failed`, `pass: 7`."""
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_VARIABLE_OF_RAY = re.compile(secrets.VARIABLES_OF_RAY)
_VARIABLES = re.compile(secrets.RUNTIME_ENV_VARIABLES_PATTERN, re.IGNORECASE)
_MEMBER = re.compile(
    r"""(?P<name>(?P<q>\\*+["'])(?:(?!(?P=q))[^\\])*+(?P=q)\s*+:\s*+)(?P<quote>\\*+["'])(?:(?!(?P=quote))[^\\])*+(?P=quote)"""
)
"""A name and a plain text, as JSON has them, JSON inside a text, or Python."""
_OBJECT = re.compile(rf"\{{\s*+(?:{_MEMBER.pattern}\s*+(?:,\s*+|(?=\}})))*+\}}")
_decode_json = json.JSONDecoder().raw_decode


def has_secrets(body: bytes) -> bool:
    """Whether a JSON text may contain secrets. Most large texts need not be parsed."""
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
    """Whether a key has the name of a secret. Names of counts do not: `max_tokens`."""
    return _is_secret_cached(key) if len(key) <= _MAX_CACHED_KEY else _has_secret_name(key)


def _has_secret_name(key: str) -> bool:
    if _SECRET_PARTS.search(key) or _SECRET_VARIABLE.search(key):
        return True
    return any(word.lower() in secrets.WORDS for word in _WORD.findall(key))


_MAX_CACHED_KEY = 80
_is_secret_cached = lru_cache(4096)(_has_secret_name)
"""The rows of a listing have the same keys."""


def _object(body: dict[str, Any]) -> dict[str, Any]:
    result = {}
    for key, value in body.items():
        name = key.lower()
        if name in secrets.RUNTIME_ENV_VARIABLES:
            result[key] = _hidden_variables(value)
        elif is_secret(key):
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
    """The items. After an item `--password` alone, as in command lines, the next item is its value."""
    result = []
    is_value = False
    for item in items:
        result.append(_hidden(item) if is_value else redacted(item))
        is_value = isinstance(item, str) and _OPTION.fullmatch(item) is not None and is_secret(item)
    return result


def _hidden(value: Any) -> Any:
    """The shape of a value: keys, empty values and flags are kept."""
    if isinstance(value, dict):
        return {key: _hidden(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_hidden(inner) for inner in value]
    return value if value is None or value == "" or isinstance(value, bool) else HIDDEN


def _hidden_variables(variables: Any) -> Any:
    if not isinstance(variables, dict):
        return _hidden(variables)
    return {name: value if _VARIABLE_OF_RAY.fullmatch(name) else _hidden(value) for name, value in variables.items()}


def _runtime_env(serialized: str) -> str:
    if not serialized:
        return serialized
    try:
        parsed = msgspec.json.decode(serialized)
    except DECODING_ERRORS:
        return HIDDEN
    if not isinstance(parsed, dict):
        return HIDDEN
    return msgspec.json.encode(redacted(parsed)).decode() if _has_hint(serialized) else serialized


def _text(text: str) -> str:
    if not text or not _has_hint(text):
        return text
    return _redact_text_cached(text) if len(text) <= _MAX_CACHED_TEXT else _redact_text(text)


def _redact_text(text: str) -> str:
    if _VARIABLES.search(text) and (whole := _of_json(text)):
        return whole
    without = _PASSWORD_IN_URL.sub(rf"\g<before>{HIDDEN}", text)
    return _without_values(_SIGNATURE_IN_URL.sub(rf"\g<before>{HIDDEN}", without))


_MAX_CACHED_TEXT = 2048
_redact_text_cached = lru_cache(2048)(_redact_text)
"""The rows of a listing repeat texts such as call sites and error messages."""


def _has_hint(text: str) -> bool:
    """Rules out most texts. Ten times as fast as a pattern of all hints."""
    folded = text.casefold()
    return any(hint in folded for hint in secrets.HINTS)


def _of_json(text: str) -> str:
    """A redacted JSON text; empty if the text is not JSON."""
    try:
        parsed = msgspec.json.decode(text)
    except DECODING_ERRORS:
        return ""
    return msgspec.json.encode(redacted(parsed)).decode() if isinstance(parsed, dict | list) else ""


def _without_values(text: str) -> str:
    parts = []
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
        parts += [text[position : named.end()], shape]
        position = end
    return "".join([*parts, text[position:]])


def _secret(text: str, named: re.Match[str]) -> tuple[str, int]:
    """The replacement for the value of a secret, and its end in the text."""
    value = _VALUE.match(text, named.end())
    if not value or (value[0].startswith("-") and named[0].endswith("= ")):  # `password= --next`: no value
        return "", named.end()
    if named["option"] and value[0].startswith("--"):  # `--token --password x`: another option
        return "", named.end()
    is_bare = not named["quote"] and named["by"] == ":" and named["key"].lower() in secrets.ORDINARY_WORDS
    if is_bare and _ORDINARY_VALUE.fullmatch(value[0]):
        return "", named.end()
    end = value.end()
    is_quoted = text[end - 1] in "\"'"
    while is_quoted and (continued := _CONTINUED.match(text, end - 1)):
        value = _VALUE.match(text, continued.end())
        end = value.end() if value else continued.end()
    return HIDDEN, end


def _variables(text: str, named: re.Match[str]) -> tuple[str, int]:
    """The replacement for the value of `env_vars`, and its end in the text."""
    start = named.end()
    if not text.startswith("{", start):
        line = text.find("\n", start)
        below = "\n" in named[0]  # as in YAML, where the end is hard to find
        return HIDDEN if text[start:].strip() else "", len(text) if below or line < 0 else line
    if plain := _OBJECT.match(text, start):
        return _MEMBER.sub(rf"\g<name>\g<quote>{HIDDEN}\g<quote>", plain[0]), plain.end()
    try:
        parsed, end = _decode_json(text, start)
        # As ASCII, because a name may hold half of a surrogate pair.
        return json.dumps(_hidden_variables(parsed), separators=(",", ":")), end
    except (ValueError, RecursionError):
        return HIDDEN, len(text)
