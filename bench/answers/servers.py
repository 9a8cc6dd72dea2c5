"""The servers that are compared: each runs the code of one source tree."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.processes import Process, free_port, port_is_open

HOST = "history.example"
"""Sent as `Host`, so that addresses in answers do not differ by port."""


@dataclass(frozen=True)
class Answer:
    """One response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes = field(repr=False)

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


@dataclass(frozen=True)
class Server:
    """A running server."""

    name: str
    port: int
    base_path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent with every request."""

    def request(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)) as connection:
            connection.putrequest(method, self.base_path + path, skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": HOST, **self.headers, **(headers or {})}.items():
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            sent = [(name.lower(), value) for name, value in response.getheaders()]
            return Answer(response.status, sent, response.read())


def source_tree(tree: str, folder: Path) -> Path:
    """A directory as it is, or a git revision extracted into `folder`."""
    if Path(tree).is_dir():
        return Path(tree).resolve()
    folder.mkdir(parents=True)
    packed = subprocess.run(["git", "archive", tree, "src"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
    return folder


@contextmanager
def both(trees: Sequence[Path], folder: Path, way: str, options: Sequence[str]) -> Iterator[list[Server]]:
    """A server of each tree over the archive in `folder`, with the same options."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(_server(name, tree, folder / "archive", folder / way / name, options))
            for name, tree in zip(("before", "after"), trees, strict=True)
        ]


@contextmanager
def _server(name: str, tree: Path, archive: Path, folder: Path, options: Sequence[str]) -> Iterator[Server]:
    own = tree / ".venv/bin/python"  # a tree may need other versions of its dependencies
    python = str(own) if own.exists() else sys.executable
    port = free_port()
    command = [
        *(python, "-c", "from ray_history.cli import main; main()", "--log-level", "warning", "serve"),
        *("--storage", archive.absolute().as_uri(), "--no-share-index", "--port", str(port)),
        *("--cache-dir", str(folder / "cache"), *options),
    ]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_HISTORY_")}
    environment["PYTHONPATH"] = str(tree / "src")
    folder.mkdir(parents=True)
    with Process(command, log=folder / "server.log", ready=lambda: port_is_open(port), env=environment):
        yield Server(name, port)
