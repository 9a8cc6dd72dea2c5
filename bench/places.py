"""Storage for measurements."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.archive.stores.s3 import S3Settings
from tests.support.seaweedfs import SeaweedFS


@contextmanager
def s3_bucket() -> Iterator[S3Settings]:
    """An empty bucket on a real S3 server on loopback."""
    with tempfile.TemporaryDirectory() as folder:
        server = SeaweedFS(Path(folder))
        server.start()
        try:
            settings = S3Settings(
                "bench",
                endpoint=server.endpoint,
                region="us-east-1",
                access_key_id=server.access_key,
                secret_access_key=server.secret_key,
            )
            open_store(settings).check(create=True)
            yield settings
        finally:
            server.stop()


@contextmanager
def s3_server() -> Iterator[Store]:
    """The same bucket as a store."""
    with s3_bucket() as settings:
        yield open_store(settings)


@contextmanager
def directory() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        yield open_store(DirectorySettings(Path(folder)))
