"""Small files that the collector saves on its volume, whole and durably, with a checksum.

JSON can be damaged and still be JSON: with another position, or another node id. So the last line of a file is the
crc32 of what is before; files of earlier versions have none.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path

_CHECKSUM = re.compile(rb"\n([0-9a-f]{8})\n")
_LENGTH = 10


class DamagedFile(ValueError):
    """The content does not match its checksum."""


def save(file: Path, content: bytes) -> None:
    """Replace the file; durable on return."""
    temporary = file.with_name(file.name + ".new")
    with temporary.open("wb") as written:
        written.write(b"%s\n%08x\n" % (content, zlib.crc32(content)))
        written.flush()
        os.fsync(written.fileno())
    temporary.replace(file)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load(file: Path) -> bytes:
    """The content, which may still be that of a damaged file if an earlier version saved it."""
    data = file.read_bytes()
    checksum = _CHECKSUM.fullmatch(data[-_LENGTH:])
    if checksum is None:
        return data
    content = data[:-_LENGTH]
    if int(checksum[1], 16) != zlib.crc32(content):
        raise DamagedFile("it does not match its checksum")
    return content
