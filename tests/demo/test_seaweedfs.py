"""The S3 server of the demo and of the tests."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from obstore.exceptions import BaseError, PermissionDeniedError

from ray_history.demo.processes import port_is_open
from ray_history.demo.seaweedfs import SeaweedFS
from tests.support.object_clients import keys


def test_objects_survive_kill_9(tmp_path: Path) -> None:
    server = SeaweedFS(tmp_path)
    try:
        server.start()
        store = server.store("history")
        obstore.put(store, "kept", b"yes")
        server.kill9()
        assert not port_is_open(server.port)
        server.start()
        assert bytes(obstore.get(store, "kept").bytes()) == b"yes"
    finally:
        server.stop()


def test_the_reader_may_read_but_not_write(seaweedfs: SeaweedFS) -> None:
    obstore.put(seaweedfs.store("shared"), "a", b"x")
    reader = seaweedfs.store("shared", access_key=seaweedfs.reader_access_key, secret_key=seaweedfs.reader_secret_key)
    assert keys(reader) == ["a"]
    with pytest.raises(PermissionDeniedError):
        obstore.put(reader, "b", b"x")


def test_wrong_keys_are_denied(seaweedfs: SeaweedFS) -> None:
    with pytest.raises(PermissionDeniedError):
        obstore.put(seaweedfs.store("shared", secret_key="wrong"), "a", b"x")


def test_a_missing_bucket_is_an_error(seaweedfs: SeaweedFS) -> None:
    with pytest.raises(BaseError, match="NoSuchBucket"):
        keys(seaweedfs.store("not-there"))
