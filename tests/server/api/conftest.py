"""Servers of the captured archives, for the modules of the xdist group `captured archives`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ray_history.archive import layout
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.index.documents import process_of
from ray_history.server.app import AppConfig
from tests.server.api.captured_archives import ARCHIVES, SESSION
from tests.server.serving import Served, served
from tests.support.captured import captured, write_archive

OLD = 1_700_000_000


@pytest.fixture(scope="package")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Path]:
    folder = tmp_path_factory.mktemp("dashboard")
    store = open_store(DirectorySettings(folder / "archive"))
    capture = captured()
    # No answer needs the contents of the others, and only of some their names.
    logs = {file: body for file, body in capture.logs.items() if "events/" in file[1]}
    logs |= {file: b"" for file in capture.logs if process_of(file[1])}
    written: dict[Generation, Path] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.support.captured.captured", lambda _version: replace(capture, logs=logs))
        for name, (generation, change) in ARCHIVES.items():
            cluster = Cluster("default", name)
            if generation in written:
                copy = folder / "archive" / layout.session_prefix("", cluster, SESSION)
                shutil.copytree(written[generation], copy)
                store.put(layout.marker_key("", cluster, SESSION), b"")
                change(copy)
            else:
                written[generation] = folder / "archive" / write_archive(store, generation, cluster)
    for file in (folder / "archive").glob("cluster-history/*/*/*/*/**/*"):
        os.utime(file, (OLD, OLD))
    return store, folder / "cache"


@pytest.fixture(scope="package")
def server(archive: tuple[Store, Path]) -> Iterator[Served]:
    """With the default settings."""
    with served(*archive) as running:
        yield running


@pytest.fixture(scope="package")
def open_server(archive: tuple[Store, Path]) -> Iterator[Served]:
    """Without redaction."""
    with served(*archive, AppConfig(redact=False)) as running:
        yield running
