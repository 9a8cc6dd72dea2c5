"""Records the Ray that this Python process starts: `ray_history.init()`, and `%load_ext ray_history` in a notebook.

It sets Ray's variables in this process, so it must come before `ray.init()`; after `import ray` is early enough. The
recorder ends when this process does, however that ends.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import time
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from ray_history.archive.settings import StorageOptions

from . import messages
from .command import start_recorder
from .environment import MARK, environment_of_command
from .places import Place, cluster_name, new_home


@dataclass
class _Recording:
    """The recorder of this process."""

    place: Place
    connection: socket.socket
    """Its end of it is how the recorder learns of the end of this process."""
    has_failed: bool = False


_recordings: list[_Recording] = []
"""At most one."""


def init(*, storage: str | None = None, cluster: str | None = None, namespace: str = "default") -> str:
    """Record each Ray that this process starts from now on; returns the address of the page of its newest session.

    `storage` is a URL as for `--storage`, by default `~/.ray-history/archive`. The cluster is named after the script.
    While no server runs, the command that starts one follows the address.
    """
    if _recordings:
        return _link(_recordings[0].place)
    options = StorageOptions(storage).or_default(os.environ, quiet=True)
    place = Place.of(options, namespace, cluster or cluster_name(sys.orig_argv))
    if MARK in os.environ:
        _say("this process is recorded by `ray-history run` already")
        return _link(place)
    if _is_initialized():
        _say("Ray runs already, without export of events: call this before ray.init(), or use `ray-history attach`")
        return _link(place)
    _recordings.append(_start(place))
    return _link(place)


def _start(place: Place) -> _Recording:
    place.storage.resolve(os.environ)  # refused before anything starts
    home, mark = new_home(), f"{os.getpid()}-{time.time_ns()}"
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    near, far = socket.socketpair()
    with listener, far:
        names = (place.namespace, place.cluster)
        order = messages.Order(mark, asdict(place.storage), *names, str(home), listener.fileno(), far.fileno())
        start_recorder(order, home)
        os.environ.update(environment_of_command(listener.getsockname()[1], mark, os.environ))
    near.sendall(messages.encode(messages.Started(sys.orig_argv, os.getcwd(), os.getpid(), time.time())))
    recording = _Recording(place, near)
    _note_failures(recording)
    return recording


def _note_failures(recording: _Recording) -> None:
    """Tell the recorder of an exception that ends this process: Ray calls its driver a success."""
    before = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        recording.has_failed = True
        before(kind, error, trace)

    def end() -> None:
        if recording.has_failed:
            recording.connection.sendall(messages.encode(messages.Ended(time.time(), 1)))

    sys.excepthook = note
    # Before `import ray`, so that it runs after Ray's own, which stops Ray.
    atexit.register(end)


def _is_initialized() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _link(place: Place) -> str:
    return place.link("latest")


def _say(text: str) -> None:
    sys.stderr.write(f"ray-history: {text}\n")


def load_ipython_extension(_: Any) -> None:
    """`%load_ext ray_history`: `init()` for a notebook, which shows the link."""
    sys.stdout.write(f"Ray is recorded: {init()}\n")
