"""Where sessions of this machine are kept, how their clusters are named, and where they can be seen."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from ray_history.archive.names import dns_name
from ray_history.archive.settings import DEFAULT_ARCHIVE, StorageOptions

from .server import running_server

RUNS = Path("~/.ray-history/runs")
"""Where each recorder keeps its spool and its log while it runs."""
_SCRIPT = re.compile(r"\S+[.](py|sh|ipynb)")
_PROGRAM = re.compile(r"[^-=\s][^=\s]*")
_LAUNCHER = re.compile(r"(python|pypy)[\d.]*|(ba|z)?sh|uvx?|conda|poetry|env|nohup|nice|time|run")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 50


def new_home() -> Path:
    """An empty directory for the recorder, in the home directory if that can be written to."""
    try:
        runs = RUNS.expanduser()
        runs.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=runs))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="ray-history-"))


@dataclass(frozen=True)
class Place:
    """A cluster in an archive."""

    storage: StorageOptions
    namespace: str
    cluster: str

    @classmethod
    def of(cls, storage: StorageOptions, namespace: str, cluster: str) -> Place:
        """The place of these names, if they are valid."""
        return cls(storage, dns_name(namespace, "namespace"), dns_name(cluster, "cluster"))

    def link(self, session: str) -> str:
        """The address of the page of a session; where no server runs, with the command that starts one."""
        url = self.storage.resolve(os.environ).url
        path = f"/s/{self.namespace}/{self.cluster}/{session}/_session"
        if server := running_server(url):
            return server + path
        given = f" --storage {url}" if url != Path(DEFAULT_ARCHIVE).expanduser().as_uri() else ""
        return f"http://127.0.0.1:8080{path} (after: ray-history ui{given})"


def cluster_name(words: Sequence[str]) -> str:
    """A name for the sessions of a command: that of its script or module, otherwise of its program."""
    script = next((Path(word).stem for word in words if _SCRIPT.fullmatch(word)), "")
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
    programs = (Path(word).name for word in takewhile(lambda word: word != "-c", words) if _PROGRAM.fullmatch(word))
    name = script or module or next((name for name in programs if not _LAUNCHER.fullmatch(name)), "")
    return _NOT_IN_NAMES.sub("-", name.lower())[:_LONGEST_NAME].strip("-") or "local"
