"""The file that says who may see what: a JSON list of people, tokens and groups with the namespaces they see.

    [{"name": "ada", "token_sha256": "9f86d0…", "namespaces": ["ml-*", "default/demo"]},
     {"name": "ci", "token": "a-long-random-text", "namespaces": ["*"]},
     {"group": "auditors", "namespaces": ["*"]}]

`namespaces` are patterns of namespaces, or of NAMESPACE/CLUSTER. The file is read again when it changed; one that
cannot be understood is told in the log, and what was understood last goes on to count.
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

from .credentials import is_token, token_hash

logger = logging.getLogger(__name__)

_SHORTEST_TOKEN = 16
_LARGEST_FILE = 4 << 20
_LOOK_AGAIN = 1.0
_PATTERN = re.compile(r"[a-z0-9.*?\[\]!_-]+(/[a-z0-9.*?\[\]!_-]+)?")


class WrongRules(ValueError):
    """A file that cannot be used, and what to change in it."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    namespaces: list[str]
    name: str = ""
    group: str = ""
    token: str = ""
    token_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """Somebody or a group, and what they see."""

    name: str
    group: str
    digest: bytes | None
    patterns: tuple[str, ...]

    def sees(self, namespace: str, cluster: str) -> bool:
        return any(
            fnmatchcase(f"{namespace}/{cluster}" if "/" in pattern else namespace, pattern) for pattern in self.patterns
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """All of a file."""

    rules: tuple[Rule, ...] = ()

    def by_token(self, token: str) -> Rule | None:
        """Whose token it is; takes the same time whichever it is, or if it is none."""
        digest = token_hash(token)
        found = None
        for rule in self.rules:
            if rule.digest is not None and hmac.compare_digest(rule.digest, digest):
                found = rule
        return found

    def of(self, name: str, groups: Iterable[str]) -> tuple[Rule, ...]:
        """All that is said about somebody in these groups."""
        member = set(groups)
        return tuple(
            rule for rule in self.rules if (rule.name and rule.name == name) or (rule.group and rule.group in member)
        )


def parse_rules(content: bytes) -> Rules:
    try:
        entries = msgspec.json.decode(content, type=list[_Entry])
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise WrongRules(f"is no list of rules: {error}") from None
    return Rules(tuple(_rule(entry, f"entry {number}") for number, entry in enumerate(entries, 1)))


def _rule(entry: _Entry, which: str) -> Rule:
    if bool(entry.name) == bool(entry.group):
        raise WrongRules(f"{which} needs either a name or a group")
    if entry.token and entry.token_sha256:
        raise WrongRules(f"{which} has a token and a token_sha256; one of them is enough")
    digest = None
    if entry.token:
        if len(entry.token) < _SHORTEST_TOKEN or not is_token(entry.token):
            raise WrongRules(
                f"{which}: a token has at least {_SHORTEST_TOKEN} characters, letters, digits and ._~+/- only; "
                "`openssl rand -hex 32` makes a good one"
            )
        digest = token_hash(entry.token)
    elif entry.token_sha256:
        if not re.fullmatch("[0-9a-fA-F]{64}", entry.token_sha256):
            raise WrongRules(f"{which}: token_sha256 has 64 hexadecimal digits, as `sha256sum` prints them")
        digest = bytes.fromhex(entry.token_sha256)
    if digest is not None and entry.group:
        raise WrongRules(f"{which}: a token belongs to a name, not to a group")
    for pattern in entry.namespaces:
        if not _PATTERN.fullmatch(pattern):
            raise WrongRules(f"{which}: {pattern!r} is no pattern of a NAMESPACE or NAMESPACE/CLUSTER")
    return Rule(entry.name, entry.group, digest, tuple(entry.namespaces))


class RulesFile:
    """The rules of a file, always the newest that could be understood."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.path, self._clock = path, clock
        self._lock = threading.Lock()
        self._state = self._now()
        self._rules = self._read()
        self._looked = clock()

    def current(self) -> Rules:
        with self._lock:
            if self._clock() - self._looked >= _LOOK_AGAIN:
                self._looked = self._clock()
                self._look_again()
            return self._rules

    def _look_again(self) -> None:
        try:
            state = self._now()
            if state == self._state:
                return
            self._rules, self._state = self._read(), state
        except WrongRules as error:
            logger.error("%s; what it said before still counts", error)
            return
        logger.info("%s changed: %d rules", self.path, len(self._rules.rules))

    def _now(self) -> tuple[int, int, int]:
        try:
            found = self.path.stat()
        except OSError as error:
            raise WrongRules(f"{self.path} cannot be read: {error.strerror}") from None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> Rules:
        try:
            mode = self.path.stat().st_mode
            with self.path.open("rb") as file:
                content = file.read(_LARGEST_FILE + 1)
        except OSError as error:
            raise WrongRules(f"{self.path} cannot be read: {error.strerror}") from None
        if len(content) > _LARGEST_FILE:
            raise WrongRules(f"{self.path} is larger than {_LARGEST_FILE >> 20} MiB")
        try:
            rules = parse_rules(content)
        except WrongRules as error:
            raise WrongRules(f"{self.path} {error}") from None
        if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
            logger.warning("%s can be read or changed by other users: chmod 600 keeps it to the server", self.path)
        return rules
