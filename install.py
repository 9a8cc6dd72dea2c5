"""Installs a lock file and this project into `.venv`: `python3 install.py requirements-dev.lock`.

pip installs uv, and uv installs the rest in a third of the time. uv does not read pip's configuration, which may be the
only place that names a mirror, so its settings are passed to uv as variables. If uv fails, pip installs everything.
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

# pip's settings, with the variable of uv for each and the separator between several values.
UV_VARIABLES = {
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
# Half of all modules, which are rarely imported; Python compiles them when they are.
RARELY_IMPORTED = "/(tests|rllib|llm|tune)/"


def pip_settings(listing: str) -> dict[str, str]:
    """Parse `pip config list`; the environment overrides `[install]`, which overrides `[global]`."""
    settings = {}
    lines = [line.partition("=") for line in listing.splitlines()]
    for section in ("global.", "install.", ":env:."):
        for key, _, value in lines:
            if key.startswith(section):
                settings[key.removeprefix(section)] = str(ast.literal_eval(value))
    return settings


def uv_environment(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that make uv use pip's index and network settings; those of uv that are already set are kept."""
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # like pip; the hashes make it safe
    for setting, (variable, separator) in UV_VARIABLES.items():
        values = settings.get(setting, "").split()
        if setting == "find-links":  # pip ignores a missing folder; for uv it is an error
            values = [value for value in values if urlsplit(value).scheme or Path(value).is_dir()]
        if values:
            variables[variable] = separator.join(values)
    return {**variables, **environment}


def pin_of_uv(lock: str) -> str:
    """The entry of uv in a lock file, with its hashes."""
    found = re.search(r"^uv==.*\n(?:[ \t]+.*\n)*", lock, re.MULTILINE)
    if found is None:
        raise SystemExit("the lock file does not contain uv: run `make lock`")
    return found[0]


class Environment:
    """A virtual environment with its installers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = str(folder / "bin" / "python")
        self.pip = (self.python, "-m", "pip")
        self.uv = (str(folder / "bin" / "uv"), "pip")

    def create(self) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(self.folder)], check=True)

    def install(self, lock: Path, project: Path) -> None:
        dependencies = ("install", "--quiet", "--require-hashes", "-r", str(lock))
        this_project = ("install", "--quiet", "--no-deps", "--no-build-isolation", "-e", str(project))
        try:
            environment = self._with_uv(lock.read_text())
            for arguments in (dependencies, this_project):
                subprocess.run([*self.uv, *arguments, "--python", self.python], env=environment, check=True)
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"uv failed ({error}); installing with pip, which takes longer", flush=True)
            for arguments in (dependencies, this_project):
                subprocess.run([*self.pip, *arguments, "--no-compile"], check=True)

    def compile(self) -> None:
        """Compile all modules once, before many processes of a cluster do it at the same time."""
        flags = ("-qq", "-j", "0", "-x", RARELY_IMPORTED)
        command = (self.python, "-W", "ignore", "-m", "compileall", *flags, str(self.folder / "lib"))
        # Some packages contain files that are not valid for this version of Python: ignore the exit code.
        subprocess.run(command, check=False)

    def _with_uv(self, lock: str) -> dict[str, str]:
        """Install uv, and return its environment."""
        arguments = ("install", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "-r", "/dev/stdin")
        subprocess.run([*self.pip, *arguments], input=pin_of_uv(lock), text=True, check=True)
        listing = subprocess.run([*self.pip, "config", "list"], capture_output=True, text=True, check=True)
        return uv_environment(pip_settings(listing.stdout), os.environ)


def refuse_old_python(version: tuple[int, ...], program: str) -> None:
    if version < OLDEST_PYTHON:
        found, required = (".".join(map(str, each[:2])) for each in (version, OLDEST_PYTHON))
        raise SystemExit(
            f"Python {required} or newer is required, but {program} is {found}: choose another with "
            "make PYTHON=python3.12 ..."
        )


def main() -> None:
    lock = Path(sys.argv[1])
    refuse_old_python(sys.version_info[:2], sys.executable)
    environment = Environment(Path(".venv"))
    began = time.monotonic()

    def report(step: str) -> None:
        print(f"{step} ({time.monotonic() - began:.0f} s)", flush=True)

    print(f"Installing {lock} into .venv; without a cache this takes about a minute", flush=True)
    environment.create()
    report("  downloading and installing")
    environment.install(lock, Path(__file__).parent)
    report("  compiling")
    environment.compile()
    report("Installed")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"the installation failed: {' '.join(map(str, error.cmd))}") from None
    except KeyboardInterrupt:
        raise SystemExit("\nThe installation was interrupted; run it again to continue.") from None
