"""Takes the sessions of Ray out of a tar file, which may come from a stranger.

Invariants:
* only regular files are written, below an empty directory, under names without `..`; links and devices are left out;
* the bytes that are written are bounded, whatever the headers and the compression say.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from ray_history.archive.names import is_session
from ray_history.moments import is_moment

_BLOCK = 1 << 20
_LONGEST_NAME = 255
MAX_FILES = 200_000


class CannotUnpack(Exception):
    """The file is not a tar file with sessions, or is too large; the message says which."""


def unpack(file: Path, into: Path, most_bytes: int) -> list[Path]:
    """Write the sessions of a tar file below `into`; returns their directories."""
    folders: dict[tuple[str, ...], Path] = {}
    left, files = most_bytes, 0
    try:
        with tarfile.open(file, "r|*") as archive:
            for member, above, name in _files(archive):
                # Directories of several nodes have the same name, and differ in the folders above it.
                folder = folders.setdefault(above, into / str(len(folders)))
                files += 1
                content = archive.extractfile(member)
                if files > MAX_FILES or content is None:
                    raise CannotUnpack(f"{file}: more than {MAX_FILES:,} files")
                left -= _write(content, folder.joinpath(*name), left)
                if left < 0:
                    raise CannotUnpack(f"{file}: more than {most_bytes >> 20:,} MiB: allow more with --max-size")
                if is_moment(member.mtime):
                    os.utime(folder.joinpath(*name), (member.mtime, member.mtime))
    except (tarfile.TarError, EOFError, OSError) as error:
        raise CannotUnpack(f"{file}: {error}") from None
    return sorted(found for folder in folders.values() for found in folder.iterdir())


def _files(archive: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, tuple[str, ...], tuple[str, ...]]]:
    """The files of sessions: the folders above the session, and the name from there on."""
    for member in archive:
        parts = PurePosixPath(member.name).parts
        start = next((number for number, part in enumerate(parts) if is_session(part)), None)
        if start is None or not member.isreg() or len(parts) == start + 1:
            continue
        name = parts[start:]
        if all(part != ".." and "\0" not in part and len(os.fsencode(part)) <= _LONGEST_NAME for part in name):
            yield member, parts[:start], name


def _write(content: IO[bytes], target: Path, most: int) -> int:
    """Write a file, at most one block more than `most` bytes; returns how many."""
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with target.open("wb") as out:
        while written <= most and (block := content.read(_BLOCK)):
            written += out.write(block)
    return written
