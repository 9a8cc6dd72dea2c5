"""What a build process can reach: it parses foreign bytes, and a defect of a parser must not cost more than indexes.

Linux confines it by Landlock, without privileges and without settings. A confined process, and all that it starts,
* writes to the given directory, to `_WRITABLE`, and to nothing else. It reads what its user may read: the libraries
  that find cloud credentials look in many places;
* does not trace processes outside or read their memory, nor, unless it is root, their environment;
* does not send signals to processes outside, connect to their abstract sockets, or listen on TCP ports, if the kernel
  is new enough (6.12);
* gains no privileges from setuid files.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_NO_NEW_PRIVS = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls, with the same numbers on all architectures."""
_VERSION, _PATH_BENEATH = 1, 1
_OLDEST = 2
"""Before it (Linux 5.19) no file can be moved to another directory."""
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_IN_DIRECTORY = 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 13
"""Remove directories and files, make directories and files, and move them to other directories."""
_NEVER = 1 << 6 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12
"""Make devices, sockets, pipes and symbolic links."""
_BIND_TCP, _OUTSIDE = 1, 3
_WRITABLE = ("/dev/null", "~/.aws", "~/.azure")
"""The libraries of clouds keep the credentials there that they renew."""


def refuse_new_privileges() -> None:
    """Let no program that this process starts gain privileges by setuid files."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:  # Linux only
        prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def why_unconfined() -> str:
    """Why processes cannot be confined on this machine; empty if they can."""
    if sys.platform != "linux":
        return "only Linux has Landlock"
    if (version := _version()) < _OLDEST:
        return f"the kernel has no Landlock, or it is switched off (version {version}, {_OLDEST} is needed)"
    return ""


def confine(directory: Path) -> None:
    """Confine this thread, and the threads and processes that it starts from now on, where that is possible."""
    refuse_new_privileges()
    if why_unconfined():
        return
    version = _version()
    writing = _WRITE_FILE | (_TRUNCATE if version >= 3 else 0)
    networks = _BIND_TCP if version >= 4 else 0
    handled = struct.pack("=QQQ", writing | _IN_DIRECTORY | _NEVER, networks, _OUTSIDE)
    ruleset = _call(_CREATE_RULESET, handled, 8 if version < 4 else 16 if version < 6 else 24, 0)
    try:
        for path in (str(directory), *map(os.path.expanduser, _WRITABLE)):
            _allow(ruleset, path, writing)
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, writing: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # what does not exist needs no rule
        return
    try:
        is_directory = stat.S_ISDIR(os.fstat(opened).st_mode)
        rule = struct.pack("=Qi", writing | _IN_DIRECTORY if is_directory else writing, opened)
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(opened)


def _version() -> int:
    """The version of Landlock's interface; 0 if there is none."""
    with suppress(OSError):
        return _call(_CREATE_RULESET, None, 0, _VERSION)
    return 0


def _call(number: int, *arguments: int | bytes | None) -> int:
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    result: int = syscall(ctypes.c_long(number), *map(_argument, arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def _argument(value: int | bytes | None) -> ctypes.c_long | bytes | None:
    return ctypes.c_long(value) if isinstance(value, int) else value
