"""Sets up `.venv` with exactly what a lock file names, and this project: `python3 install.py requirements-dev.lock`.

uv does it in a third of the time that pip takes, so pip installs uv, and uv the rest. uv does not read the settings of
pip, which are all that a machine behind a mirror may have: it is told them. Where it fails, pip does the rest as well.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

# A setting of pip, the variable by which uv is told the same, and what stands between several values.
TOLD_TO_UV = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "cert": ("SSL_CERT_FILE", " "),
    "proxy": ("ALL_PROXY", " "),
}
OLDEST_PYTHON = (3, 11)
# Half of all modules; a process that imports one after all compiles it then.
SELDOM_IMPORTED = "/(tests|rllib|llm|tune)/"


def pip_settings(listed: str) -> dict[str, str]:
    """What `pip config list` says, as pip weighs it: the environment over `[install]` over `[global]`."""
    settings = {}
    lines = [line.partition("=") for line in listed.splitlines()]
    for section in ("global.", "install.", ":env:."):
        for key, _, value in lines:
            if key.startswith(section):
                settings[key.removeprefix(section)] = str(ast.literal_eval(value))
    return settings


def uv_environment(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """With it uv asks where pip would ask; what the environment says to uv itself stays."""
    told = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # as pip does; hashes make it safe
    for setting, (variable, between) in TOLD_TO_UV.items():
        values = settings.get(setting, "").split()
        if setting == "find-links":  # a folder that is missing is nothing to pip, and an error to uv
            values = [value for value in values if urlsplit(value).scheme or Path(value).is_dir()]
        if values:
            told[variable] = between.join(values)
    return {**told, **environment}


def pin_of_uv(lock: str) -> str:
    """The lines of a lock file that name uv, with their hashes."""
    found = re.search(r"^uv==.*\n(?:[ \t]+.*\n)*", lock, re.MULTILINE)
    if found is None:
        raise SystemExit("the lock file does not name uv; make it anew with `make lock`")
    return found[0]


class Environment:
    """A virtual environment, and the programs in it that install."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = str(folder / "bin" / "python")
        self.pip = (self.python, "-m", "pip")
        self.uv = (str(folder / "bin" / "uv"), "pip")

    def create(self) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(self.folder)], check=True)

    def install(self, lock: Path, project: Path) -> None:
        locked = ("install", "--quiet", "--require-hashes", "-r", str(lock))
        ours = ("install", "--quiet", "--no-deps", "--no-build-isolation", "-e", str(project))
        try:
            environment = self._with_uv(lock.read_text())
            for arguments in (locked, ours):
                subprocess.run([*self.uv, *arguments, "--python", self.python], env=environment, check=True)
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"uv could not do it ({error}); pip does, which takes longer", flush=True)
            for arguments in (locked, ours):
                subprocess.run([*self.pip, *arguments, "--no-compile"], check=True)

    def compile(self) -> None:
        """Ahead of time: a cluster of new processes would do it many times over. Some files are no Python of today."""
        flags = ("-qq", "-j", "0", "-x", SELDOM_IMPORTED)
        quietly = (self.python, "-W", "ignore", "-m", "compileall")  # others' code is not ours to be warned of
        subprocess.run([*quietly, *flags, str(self.folder / "lib")], check=False)

    def _with_uv(self, lock: str) -> dict[str, str]:
        """Installs uv; returns the environment in which it is to run."""
        arguments = ("install", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "-r", "/dev/stdin")
        subprocess.run([*self.pip, *arguments], input=pin_of_uv(lock), text=True, check=True)
        listed = subprocess.run([*self.pip, "config", "list"], capture_output=True, text=True, check=True)
        return uv_environment(pip_settings(listed.stdout), os.environ)


def refuse_old_python(version: tuple[int, ...], program: str) -> None:
    if version < OLDEST_PYTHON:
        found, wanted = (".".join(map(str, each[:2])) for each in (version, OLDEST_PYTHON))
        raise SystemExit(
            f"Python {wanted} or newer is needed, and {program} is {found}; "
            "say which one to take: make PYTHON=python3.12 ..."
        )


def main() -> None:
    lock = Path(sys.argv[1])
    refuse_old_python(sys.version_info[:2], sys.executable)
    environment = Environment(Path(".venv"))
    began = time.monotonic()

    def tell(what: str) -> None:
        print(f"{what} ({time.monotonic() - began:.0f} s)", flush=True)

    print(f"Setting up .venv with {lock}; the first time this takes up to a minute, on a slow line longer", flush=True)
    environment.create()
    tell("  downloading and installing")
    environment.install(lock, Path(__file__).parent)
    tell("  compiling")
    environment.compile()
    tell("Set up")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"the set-up failed: {' '.join(map(str, error.cmd))}") from None
    except KeyboardInterrupt:
        raise SystemExit("\nThe set-up was interrupted; the next one goes on from here.") from None
