"""Builds of the dashboard from the package index: `ray-history dashboard add 2.58.1`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

_INSIDE = "ray/dashboard/client/build/"
_LARGEST = 200 << 20


class CannotAdd(Exception):
    """A build cannot be downloaded; the message says why."""


def add_dashboard(version: str, directory: Path) -> Path:
    """Download the Ray wheel of a version and store its dashboard in `directory/version`."""
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", version):
        raise CannotAdd(f"{version!r} is not a Ray version such as 2.58.1")
    target = directory / version
    if (target / "index.html").is_file():
        return target
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        wheel = _download(version, Path(folder))
        pages = Path(folder) / "pages"
        _unpack(wheel, pages)
        shutil.move(pages, target)
    return target


def _download(version: str, folder: Path) -> Path:
    """Download a wheel for a platform that every Ray version supports; the pages are the same in all wheels."""
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", f"ray=={version}", "--no-deps", "--quiet"),
            *("--only-binary", ":all:", "--python-version", "3.11", "--implementation", "cp"),
            *("--platform", "manylinux2014_x86_64", "--dest", str(folder)),
        ],
        capture_output=True,
        text=True,
    )
    found = list(folder.glob("ray-*.whl"))
    if ran.returncode or not found:
        last = (ran.stderr.strip().splitlines() or ["no output"])[-1]
        raise CannotAdd(f"pip could not download ray {version}: {last}")
    return found[0]


def _unpack(wheel: Path, pages: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = [info for info in archive.infolist() if info.filename.startswith(_INSIDE) and not info.is_dir()]
        if not any(info.filename == _INSIDE + "index.html" for info in inside):
            raise CannotAdd(f"{wheel.name} contains no dashboard")
        if sum(info.file_size for info in inside) > _LARGEST:
            raise CannotAdd(f"the dashboard in {wheel.name} is larger than {_LARGEST >> 20} MiB")
        for info in inside:
            name = PurePosixPath(info.filename.removeprefix(_INSIDE))
            if name.is_absolute() or ".." in name.parts or name.suffix == ".map":
                continue
            path = pages / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive.read(info))
