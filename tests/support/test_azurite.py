"""The real Azure Blob server."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from obstore.exceptions import BaseError, PermissionDeniedError

from .azurite import Azurite
from .object_clients import keys


def test_a_wrong_account_key_is_denied(azurite: Azurite) -> None:
    with pytest.raises(PermissionDeniedError):
        obstore.put(azurite.store("any", account_key="d3Jvbmc="), "a", b"x")


def test_a_missing_container_is_an_error(azurite: Azurite) -> None:
    with pytest.raises(BaseError, match="ContainerNotFound"):
        keys(azurite.store("not-there"))


def test_a_persistent_server_keeps_its_blobs_across_a_restart(azurite: Azurite, tmp_path: Path) -> None:
    server = Azurite(tmp_path, persistent=True)
    try:
        server.start()
        server.create_container("history")
        obstore.put(server.store("history"), "kept", b"yes")
        server.stop()
        server.start()
        assert bytes(obstore.get(server.store("history"), "kept").bytes()) == b"yes"
    finally:
        server.stop()


def test_the_connection_string_names_the_endpoint(azurite: Azurite) -> None:
    assert f"BlobEndpoint={azurite.endpoint};" in azurite.connection_string


def test_the_lock_file_names_no_registry() -> None:
    lock = Path(__file__).parent / "azurite_npm" / "package-lock.json"
    assert "resolved" not in lock.read_text()
