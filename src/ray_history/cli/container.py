"""The entry point of the container image: replaces itself by the program that a pod means.

KubeRay has one image per program, each with its own entry point. Its manifests therefore name the program, or give only
flags, or give neither.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from .main import VERBS

PROGRAMS = ("collector", "historyserver", "ray-history")
_OF_A_NODE = ("RAY_ROLE", "RAY_CLUSTER_NAME")
"""Variables that every collector has and no server: KubeRay's operator and its manifests set them."""


def command_line(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The program and its arguments; the environment decides if the words do not name a program."""
    first = words[0] if words else "-"
    if not first.startswith("-"):
        return ["ray-history", *words] if first in VERBS else list(words)
    program = "collector" if any(environ.get(name) for name in _OF_A_NODE) else "historyserver"
    return [program, *words]


def main() -> NoReturn:
    words = command_line(sys.argv[1:], os.environ)
    # The programs of this installation come first, whatever PATH is.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    os.environ["PATH"] = path
    try:
        os.execvp(words[0], words)  # noqa: S606  # without a shell, which would not pass on signals
    except OSError as error:
        sys.stderr.write(f"cannot run {words[0]!r}: {error.strerror}; use one of {', '.join(PROGRAMS)}\n")
        sys.exit(127)


if __name__ == "__main__":
    main()
