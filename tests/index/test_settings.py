"""Settings of the index."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.settings import StorageOptions
from ray_history.archive.stores import open_store
from ray_history.index.settings import IndexSettings, make_indexer
from tests.support.captured import captured, write_archive


def test_another_process_makes_the_same_indexer(tmp_path: Path) -> None:
    storage = StorageOptions((tmp_path / "archive").as_uri()).resolve({})
    write_archive(open_store(storage), Generation.C, Cluster("team", "trainer"))
    settings = IndexSettings(cache_dir=str(tmp_path / "cache"), cache_size=7, build_threads=1, share_index=False)
    script = (
        "import pickle, sys\n"
        "from ray_history.archive.catalog import read_catalog\n"
        "indexer = pickle.load(sys.stdin.buffer)()\n"
        "(session,) = read_catalog(indexer.store).sessions\n"
        "print(session.name, indexer.cache.root, indexer.store.url)"
    )
    factory = pickle.dumps(partial(make_indexer, storage, settings))
    printed = subprocess.run([sys.executable, "-c", script], input=factory, capture_output=True, check=True)
    assert printed.stdout.decode().split() == [captured().session, str(tmp_path / "cache"), storage.url]
