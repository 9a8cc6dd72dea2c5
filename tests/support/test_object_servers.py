"""Every object server that tests use behaves as object storage does, seen through obstore."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from .azurite import Azurite
from .object_clients import FIVE_MIB, NO_RETRIES, keys
from .object_stand_in import GcsStandIn, OssStandIn
from .seaweedfs import SeaweedFS


@pytest.fixture(params=["seaweedfs", "azurite", "gcs", "oss"])
def store(request: pytest.FixtureRequest) -> S3Store | AzureStore | GCSStore:
    """An empty bucket on each part in turn."""
    name = f"bucket-{time.time_ns()}"
    match request.param:
        case "seaweedfs":
            seaweedfs: SeaweedFS = request.getfixturevalue("seaweedfs")
            return seaweedfs.store(name, retry_config=NO_RETRIES)
        case "azurite":
            azurite: Azurite = request.getfixturevalue("azurite")
            azurite.create_container(name)
            return azurite.store(name, retry_config=NO_RETRIES)
        case "gcs":
            gcs: GcsStandIn = request.getfixturevalue("gcs_stand_in")
            return gcs.store(retry_config=NO_RETRIES)
        case _:
            oss: OssStandIn = request.getfixturevalue("oss_stand_in")
            return oss.store(retry_config=NO_RETRIES)


def test_an_object_reads_back_as_it_was_written(store: ObjectStore) -> None:
    obstore.put(store, "a/log.txt", b"0123456789")
    assert bytes(obstore.get(store, "a/log.txt").bytes()) == b"0123456789"
    assert bytes(obstore.get_range(store, "a/log.txt", start=2, end=5)) == b"234"
    assert obstore.head(store, "a/log.txt")["size"] == 10


def test_awkward_names_and_folders_are_listed(store: ObjectStore) -> None:
    for key in ("a/b c+é&<.txt", "a/deep/x", "z"):
        obstore.put(store, key, b"x")
    assert keys(store) == ["a/b c+é&<.txt", "a/deep/x", "z"]
    folder = obstore.list_with_delimiter(store, "a")
    assert folder["common_prefixes"] == ["a/deep"]
    assert [meta["path"] for meta in folder["objects"]] == ["a/b c+é&<.txt"]


def test_a_large_object_is_written_in_parts(store: ObjectStore) -> None:
    body = bytes(range(256)) * (12 * 1024 * 1024 // 256)
    obstore.put(store, "large", body, chunk_size=FIVE_MIB)
    assert bytes(obstore.get(store, "large").bytes()) == body


def test_one_or_many_objects_are_deleted(store: ObjectStore) -> None:
    for key in ("a", "b&", "c"):
        obstore.put(store, key, b"x")
    obstore.delete(store, "a")
    obstore.delete(store, ["b&", "c"])
    assert keys(store) == []
    with pytest.raises(FileNotFoundError):
        obstore.get(store, "a")


# Not OSS, which has no If-None-Match: see test_object_stand_in.
@pytest.mark.parametrize("store", ["seaweedfs", "azurite", "gcs"], indirect=True)
def test_one_of_many_racing_creates_wins(store: ObjectStore) -> None:
    def create(number: int) -> bool:
        mine = str(number).encode()
        for _ in range(5):
            try:
                obstore.put(store, "ledger", mine, mode="create")
            except AlreadyExistsError:
                return bytes(obstore.get(store, "ledger").bytes()) == mine
            except GenericError as error:  # SeaweedFS gives up on a few of many at the same time, and says so
                if "please try again" not in str(error):
                    raise
            else:
                return True
        return False

    with ThreadPoolExecutor(8) as racers:
        assert sum(racers.map(create, range(8))) == 1
