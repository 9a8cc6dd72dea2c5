"""Releases of Ray in virtual environments of their own, made by uv: `python -m tests.support.ray_releases install`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .processes import PartUnavailable

FOLDER = Path(__file__).parents[2] / ".parts" / "ray"
MINORS = tuple(f"2.{minor}" for minor in range(49, 61))
"""All supported minor versions."""
OF_TESTS = ("2.52",)
"""Those that tests need beside the installed one."""

_DONE = ".installed"


def python_of(minor: str) -> Path:
    """The Python of an environment with this Ray: this one, or one that is made if it is missing."""
    if _is_installed(minor):
        return Path(sys.executable)
    folder = FOLDER / minor
    python = folder / "bin" / "python"
    if not (folder / _DONE).exists():
        _uv("venv", "--quiet", "--clear", f"--python={sys.executable}", str(folder))
        _uv("pip", "install", "--quiet", f"--python={python}", f"ray[default]=={minor}.*")
        (folder / _DONE).touch()
    return python


def _is_installed(minor: str) -> bool:
    try:
        return version("ray").startswith(f"{minor}.")
    except PackageNotFoundError:
        return False


def _uv(*arguments: str) -> None:
    uv = Path(sys.executable).with_name("uv")
    program = str(uv) if uv.exists() else shutil.which("uv")
    if program is None:
        raise PartUnavailable("uv is not installed: run `make install`")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise PartUnavailable(f"uv {arguments[0]} failed: {done.stderr[-2000:]}")


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python -m tests.support.ray_releases install")
    for each in OF_TESTS:
        sys.stdout.write(f"{python_of(each)}\n")
