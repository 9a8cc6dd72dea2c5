"""The manifest of an index: its files, and what they were built from.

Invariants:
* a manifest is written after all files that it names: who can read it can read the whole index;
* it names files by size and digest, so that truncated and changed files are recognized;
* a manifest of another version is never used; names in it cannot lead out of the directory of the index.

    Damaged             the manifest or a file is not what was written
    └── OtherVersion    the manifest belongs to a program with another meaning of the tables
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import msgspec

from ray_history.bounds import Count, Key, Name, Text, reason
from ray_history.decoding import DECODING_ERRORS
from ray_history.history.facts import Facts

VERSION = 1
"""Incremented when the meaning of the tables changes: indexes of other versions are rebuilt."""

MAX_PROBLEMS = 1000
"""Problems that are listed; further ones are only counted."""

MANIFEST = "manifest.json"
MAX_SIZE = 256 << 20
"""Bytes of the largest manifest that is read: that of a million event files has 200 MB."""
_LONGEST_TYPE, _LONGEST_PROBLEM = 200, 2000

_HASHED_AT_ONCE = 4

_FileName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9._-]*\.parquet\Z", max_length=200)]
_Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]


class Damaged(ValueError):
    """Part of an index is missing, truncated or changed; it has to be rebuilt."""


class OtherVersion(Damaged):
    """The index of a program with another meaning of the tables."""

    def __init__(self, version: int) -> None:
        super().__init__(f"the index is of version {version}, this program reads version {VERSION}")
        self.version = version


class SourceFile(msgspec.Struct, frozen=True):
    """An event file that the tables were built from."""

    key: Key
    size: Count
    etag: Key


class IndexFile(msgspec.Struct, frozen=True):
    """One file of the index."""

    name: _FileName
    size: Count
    digest: _Digest
    """SHA-256 of the content, in hex: the fastest of the good ones on current processors."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One index."""

    version: int
    session: Name
    """The session's name."""
    sources: list[SourceFile]
    meaning: Name = ""
    """The digest of the rules by which the tables were made."""
    other_sources: Name
    """A digest of the listing of everything else that it was built from."""
    files: list[IndexFile]
    rows: dict[Name, Count]
    """By table."""
    events: dict[Name, Count]
    """Events read, by type."""
    problems: Annotated[list[Text], msgspec.Meta(max_length=MAX_PROBLEMS)]
    """What could not be read, and why; the first `MAX_PROBLEMS`."""
    problem_count: Count = 0
    facts: Facts = Facts()
    journal_events: dict[Name, Count] = {}
    """Those of `events` that were read from journals. The next index on this base counts them again, in event files."""


class _Versioned(msgspec.Struct):
    version: int


_decode_version = msgspec.json.Decoder(_Versioned).decode
_decode_manifest = msgspec.json.Decoder(Manifest).decode


def encode(manifest: Manifest) -> bytes:
    """The manifest as JSON."""
    return msgspec.json.encode(manifest)


def decode(body: bytes) -> Manifest:
    """The manifest in `body`. Raises `Damaged` if it cannot be decoded, `OtherVersion` for another version."""
    try:
        version = _decode_version(body).version
        if version == VERSION:
            manifest = _decode_manifest(body)
    except DECODING_ERRORS as error:
        raise Damaged(f"{MANIFEST} is not readable: {reason(error)}") from error
    if version != VERSION:
        raise OtherVersion(version)
    if len({file.name for file in manifest.files}) != len(manifest.files):
        raise Damaged(f"{MANIFEST} names a file twice")
    return manifest


def by_type(events: Mapping[str, int]) -> dict[str, int]:
    """Numbers of events by type, without the rest of names that no type has."""
    short = Counter[str]()
    for name, number in events.items():
        short[name[:_LONGEST_TYPE]] += number
    return dict(short)


def listed(problems: Sequence[str]) -> list[str]:
    """The problems that a manifest lists, in one line each."""
    return [problem[:_LONGEST_PROBLEM] for problem in problems[:MAX_PROBLEMS]]


def new_digest() -> hashlib._Hash:
    """The algorithm of `IndexFile.digest`."""
    return hashlib.sha256()


def describe_file(path: Path) -> IndexFile:
    """The size and digest of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, new_digest).hexdigest()
        return IndexFile(path.name, file.tell(), digest)


def describe(directory: Path, names: Iterable[str]) -> list[IndexFile]:
    """The sizes and digests of files, in the order of their names."""
    with ThreadPoolExecutor(_HASHED_AT_ONCE, thread_name_prefix="digest") as threads:
        return list(threads.map(lambda name: describe_file(directory / name), names))


def check(directory: Path, manifest: Manifest, *, deep: bool = False) -> None:
    """Raise `Damaged` if a file is missing or has another size; `deep` compares the digests too."""
    try:
        for file in manifest.files:
            size = (directory / file.name).stat().st_size
            if size != file.size:
                raise Damaged(f"{directory / file.name} has {size} bytes instead of {file.size}")
        if not deep:
            return
        for file, found in zip(manifest.files, describe(directory, [f.name for f in manifest.files]), strict=True):
            if file != found:
                raise Damaged(f"{directory / file.name} is not what was written there")
    except OSError as error:
        raise Damaged(f"{error.filename or directory} cannot be read: {error.strerror}") from error
