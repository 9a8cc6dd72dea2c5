"""What `ray-history import` reads: tar files, which may come from strangers."""

from __future__ import annotations

import io
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path

from ray_history.archive.names import is_session
from ray_history.local.unpack import CannotUnpack, unpack
from tests.fuzz.target import target
from tests.fuzz.targets.objects import SESSION

_MOST_BYTES = 1 << 16


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="ray-history-fuzz-"))


def _tar(*names: str, kind: bytes = tarfile.REGTYPE) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = kind, "/etc", 3 if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(b"abc"))
    return file.getvalue()


def _tars() -> list[bytes]:
    names = (f"{SESSION}/logs/raylet.out", f"a/../{SESSION}/../x", f"/{SESSION}/metrics_export_port_1")
    return [_tar(*names), _tar(*names, kind=tarfile.SYMTYPE), b""]


@target("tar_files", _tars, tokens=(b"../", SESSION.encode(), b"ustar", b"\0"))
def tar_files(data: bytes) -> None:
    """Only regular files below session directories are written, inside the given directory, and not too many bytes."""
    place = _folder() / "place"
    file, into = place / "file.tar", place / "into"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    file.write_bytes(data)
    try:
        directories = unpack(file, into, _MOST_BYTES)
    except CannotUnpack:
        directories = []
    assert all(is_session(directory.name) for directory in directories)
    assert {path.name for path in place.iterdir()} <= {"file.tar", "into"}
    written = list(into.rglob("*")) if into.exists() else []
    assert not any(path.is_symlink() for path in written)
    assert sum(path.stat().st_size for path in written if path.is_file()) <= _MOST_BYTES + (1 << 20)
