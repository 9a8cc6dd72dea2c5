"""The rules file: a JSON list of users, tokens and groups, with the namespaces that each may see.

    [{"name": "ada", "token_sha256": "9f86d0…", "namespaces": ["ml-*", "default/demo"]},
     {"name": "ci", "token": "a-long-random-text", "namespaces": ["*"]},
     {"group": "auditors", "namespaces": ["*"]}]

`namespaces` are patterns of NAMESPACE or NAMESPACE/CLUSTER. The file is read again when it changes. If it becomes
invalid, an error is logged and the last valid rules stay in force.
"""

from __future__ import annotations

import hmac
import logging
import re
import stat
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from ray_history.decoding import DECODING_ERRORS

from .credentials import is_token, token_hash

logger = logging.getLogger(__name__)

_SHORTEST_TOKEN = 16
_LARGEST_FILE = 4 << 20
_CHECK_INTERVAL = 1.0
_PATTERN = re.compile(r"[a-z0-9.*?\[\]!_-]+(/[a-z0-9.*?\[\]!_-]+)?")


class InvalidRules(ValueError):
    """The file cannot be used; the message says what to change."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    namespaces: list[str]
    name: str = ""
    group: str = ""
    token: str = ""
    token_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A user or a group, with the namespaces that they may see."""

    name: str
    group: str
    digest: bytes | None
    patterns: tuple[str, ...]

    def allows(self, namespace: str, cluster: str) -> bool:
        return any(
            fnmatchcase(f"{namespace}/{cluster}" if "/" in pattern else namespace, pattern) for pattern in self.patterns
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one file."""

    rules: tuple[Rule, ...] = ()

    def by_token(self, token: str) -> Rule | None:
        """The rule of a token. Takes the same time whether or not the token is known."""
        digest = token_hash(token)
        found = None
        for rule in self.rules:
            if rule.digest is not None and hmac.compare_digest(rule.digest, digest):
                found = rule
        return found

    def of(self, name: str, groups: Iterable[str]) -> tuple[Rule, ...]:
        """The rules for a user and their groups."""
        member = set(groups)
        return tuple(
            rule for rule in self.rules if (rule.name and rule.name == name) or (rule.group and rule.group in member)
        )


def parse_rules(content: bytes) -> Rules:
    try:
        entries = msgspec.json.decode(content, type=list[_Entry])
    except DECODING_ERRORS as error:
        raise InvalidRules(f"is not a list of rules: {error}") from None
    return Rules(tuple(_rule(entry, f"entry {number}") for number, entry in enumerate(entries, 1)))


def _rule(entry: _Entry, which: str) -> Rule:
    if bool(entry.name) == bool(entry.group):
        raise InvalidRules(f"{which} needs either a name or a group")
    if entry.token and entry.token_sha256:
        raise InvalidRules(f"{which} has both token and token_sha256; give one of them")
    digest = None
    if entry.token:
        if len(entry.token) < _SHORTEST_TOKEN or not is_token(entry.token):
            raise InvalidRules(
                f"{which}: a token needs at least {_SHORTEST_TOKEN} characters: letters, digits and ._~+/- only; "
                "create one with `openssl rand -hex 32`"
            )
        digest = token_hash(entry.token)
    elif entry.token_sha256:
        if not re.fullmatch("[0-9a-fA-F]{64}", entry.token_sha256):
            raise InvalidRules(f"{which}: token_sha256 needs 64 hexadecimal digits, as printed by `sha256sum`")
        digest = bytes.fromhex(entry.token_sha256)
    if digest is not None and entry.group:
        raise InvalidRules(f"{which}: a token belongs to a name, not to a group")
    for pattern in entry.namespaces:
        if not _PATTERN.fullmatch(pattern):
            raise InvalidRules(f"{which}: {pattern!r} is not a pattern of NAMESPACE or NAMESPACE/CLUSTER")
    return Rule(entry.name, entry.group, digest, tuple(entry.namespaces))


class RulesFile:
    """The last valid rules of a file."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self._clock = path, clock
        self._lock = threading.Lock()
        self._state = self._stat()
        self._rules = self._read()
        self._checked = clock()

    def current(self) -> Rules:
        with self._lock:
            if self._clock() - self._checked >= _CHECK_INTERVAL:
                self._checked = self._clock()
                self._reload()
            return self._rules

    def _reload(self) -> None:
        try:
            state = self._stat()
            if state == self._state:
                return
            self._rules, self._state = self._read(), state
        except InvalidRules as error:
            logger.error("%s; the previous rules stay in force", error)
            return
        logger.info("%s changed: %d rules", self.path, len(self._rules.rules))

    def _stat(self) -> tuple[int, int, int]:
        try:
            found = self.path.stat()
        except OSError as error:
            raise InvalidRules(f"{self.path} cannot be read: {error.strerror}") from None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> Rules:
        try:
            mode = self.path.stat().st_mode
            with self.path.open("rb") as file:
                content = file.read(_LARGEST_FILE + 1)
        except OSError as error:
            raise InvalidRules(f"{self.path} cannot be read: {error.strerror}") from None
        if len(content) > _LARGEST_FILE:
            raise InvalidRules(f"{self.path} is larger than {_LARGEST_FILE >> 20} MiB")
        try:
            rules = parse_rules(content)
        except InvalidRules as error:
            raise InvalidRules(f"{self.path} {error}") from None
        if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
            logger.warning("%s can be read or changed by other users; restrict it with chmod 600", self.path)
        return rules
