"""Programs of Debian packages that are only unpacked, into `.parts/`, which git ignores; nothing is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from .processes import PartUnavailable

_PARTS = Path(__file__).parents[2] / ".parts"


def program_of(package: str, name: str) -> Path:
    """The path of a program of a package: the installed one, or one that is unpacked if it is missing."""
    installed = shutil.which(name)
    if installed:
        return Path(installed)
    folder = _PARTS / package
    unpacked = folder / "usr" / "bin" / name
    if not unpacked.exists():
        _unpack(package, folder)
    return unpacked


def _unpack(package: str, folder: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise PartUnavailable(f"{package} is not installed, and this is no Debian to get its package from")
    folder.mkdir(parents=True, exist_ok=True)
    download = ["apt-get", "--quiet=2", "--option=Acquire::Retries=3", "download", package]
    if subprocess.run(download, cwd=folder, capture_output=True, check=False).returncode:
        subprocess.run(["apt-get", "--quiet=2", "update"], capture_output=True, check=False)
        done = subprocess.run(download, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PartUnavailable(f"{package} cannot be downloaded: {done.stderr.strip()[-500:]}")
    file = max(folder.glob(f"{package}_*.deb"))
    subprocess.run(["dpkg", "-x", file, folder], check=True)
    file.unlink()
