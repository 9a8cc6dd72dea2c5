"""A server with authentication, and users with tokens."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.app import AppConfig
from ray_history.server.auth import AuthBackend
from tests.server.serving import Served, served
from tests.support.captured import captured, write_archive

SESSION = captured().session
ADA = "ada-has-this-long-token"
"""May see the namespace `default`."""
BOB = "bob-has-another-long-token"
"""May see the namespace `locked`, and in `default` only the cluster `shared`."""
WRONG = "nobody-has-this-long-token"

RULES: list[dict[str, Any]] = [
    {"name": "ada", "token": ADA, "namespaces": ["default"]},
    {"name": "bob", "token": BOB, "namespaces": ["lock*", "default/shared"]},
]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def rules_file(folder: Path, rules: object = RULES) -> Path:
    path = folder / "rules.json"
    path.write_text(json.dumps(rules))
    os.chmod(path, 0o600)
    return path


def archive(folder: Path) -> Store:
    """`default/demo` for Ada, `locked/demo` for Bob."""
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    write_archive(store, Generation.C, Cluster("locked", "demo", "rayjob", "nightly"))
    return store


@dataclass(frozen=True)
class Asking:
    """Sends requests to a running server, without following redirects."""

    server: Served

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> requests.Response:
        return self.ask("GET", path, headers)

    def post(self, path: str, headers: Mapping[str, str] | None = None, **form: str) -> requests.Response:
        return self.ask("POST", path, headers, form)

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, form: Mapping[str, str] | None = None
    ) -> requests.Response:
        url = self.server.url + path
        return requests.request(method, url, headers=headers, data=form, timeout=200, allow_redirects=False)


@contextmanager
def asking(folder: Path, mode: AuthBackend, store: Store, **choices: Any) -> Iterator[Asking]:
    with served(store, folder / "cache", AppConfig(auth=mode, **choices)) as server:
        yield Asking(server)


class Clock:
    """A clock that advances only when the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
