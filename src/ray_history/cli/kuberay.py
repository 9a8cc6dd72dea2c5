"""Drop-in mains for KubeRay's `collector` and `historyserver` binaries: they take the same command lines."""

from __future__ import annotations

import os
import re
import sys
from typing import NoReturn

from .main import main


def collector_main() -> NoReturn:
    """`collector`: `ray-history collect`."""
    main(["collect", *with_two_dashes(sys.argv[1:])])


def historyserver_main() -> NoReturn:
    """`historyserver`: `ray-history serve`, on all addresses and without authentication like the original."""
    os.environ.setdefault("RAY_HISTORY_HOST", "0.0.0.0")  # noqa: S104
    os.environ.setdefault("RAY_HISTORY_AUTH", "none")
    main(["serve", *with_two_dashes(sys.argv[1:])])


def with_two_dashes(arguments: list[str]) -> list[str]:
    """The arguments with long options spelled with two dashes; Go programs take one as well."""
    return [f"-{argument}" if re.match(r"-[a-z]{2}", argument) else argument for argument in arguments]
