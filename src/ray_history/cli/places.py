"""Where the verbs of a laptop keep sessions, and where these can be seen."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ray_history.archive.names import dns_name
from ray_history.archive.settings import DEFAULT_ARCHIVE, StorageOptions

RUNS = Path("~/.ray-history/runs")
"""Where each recorder keeps its spool and its log while it runs."""


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
        from ray_history.local.server import running_server

        url = self.storage.resolve(os.environ).url
        path = f"/s/{self.namespace}/{self.cluster}/{session}/_session"
        if server := running_server(url):
            return server + path
        given = f" --storage {url}" if url != Path(DEFAULT_ARCHIVE).expanduser().as_uri() else ""
        return f"http://127.0.0.1:8080{path} (after: ray-history ui{given})"
