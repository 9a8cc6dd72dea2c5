"""Drop-in mains for KubeRay's `collector` and `historyserver` binaries: they take the same command lines.

An unknown flag only causes a warning: manifests of a newer KubeRay must not keep a pod from starting.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import click

from .main import main, ray_history

_SWITCHES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "collect": {"--ray-head": ("--role=Head",)},
    "serve": {"--enable-auth": ("--auth=kubernetes",), "--enable-live-clusters": ("--kube=on", "--live-proxy")},
}
"""KubeRay's switches that are written differently here, by verb."""
_OFF = {"--enable-live-clusters": ("--kube=off",)}
"""Those that also mean something when they are false."""


def collector_main() -> NoReturn:
    """`collector`: `ray-history collect`."""
    _run("collect")


def historyserver_main() -> NoReturn:
    """`historyserver`: `ray-history serve`, on all addresses and without authentication like the original."""
    os.environ.setdefault("RAY_HISTORY_HOST", "0.0.0.0")  # noqa: S104
    os.environ.setdefault("RAY_HISTORY_AUTH", "none")
    _run("serve")


def _run(verb: str) -> NoReturn:
    try:
        words, unknown = translate(verb, sys.argv[1:])
    except click.UsageError as error:
        error.show()
        sys.exit(2)
    main([verb, *words], unknown_flags=unknown)


def translate(verb: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments as the verb of `ray-history` takes them, and the unknown flags, which are left out."""
    takes_value = _flags_of(verb)
    found: list[str] = []
    unknown: list[str] = []
    rest = with_two_dashes(arguments)
    while rest:
        word = rest.pop(0)
        flag, has_value, value = word.partition("=")
        if flag in _SWITCHES[verb]:
            is_on = click.BOOL.convert(value if has_value else "true", None, None)
            found += _SWITCHES[verb][flag] if is_on else _OFF.get(flag, ())
        elif flag in takes_value:
            needs_next = takes_value[flag] and not has_value
            found += [word, *(rest.pop(0) for _ in rest[:needs_next])]
        elif flag.startswith("-"):
            needs_next = not has_value and bool(rest) and not rest[0].startswith("-")
            unknown.append(" ".join([word, *(rest.pop(0) for _ in rest[:needs_next])]))
        else:
            found.append(word)
    return found, unknown


def _flags_of(verb: str) -> dict[str, bool]:
    """The flags of a verb, and whether the next word is their value."""
    command = ray_history.get_command(click.Context(ray_history), verb)
    found = {"--help": False, "-h": False}
    for option in command.params if command else ():
        needs_value = isinstance(option, click.Option) and not option.is_flag and option.flag_value != "true"
        found |= dict.fromkeys([*option.opts, *option.secondary_opts], needs_value)
    return found


def with_two_dashes(arguments: Sequence[str]) -> list[str]:
    """The arguments with long options spelled with two dashes; Go programs take one as well."""
    return [f"-{argument}" if re.match(r"-[a-z]{2}", argument) else argument for argument in arguments]
