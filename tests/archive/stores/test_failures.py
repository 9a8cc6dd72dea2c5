"""Failures of the store, the network and the settings are retried or reported; no partial read counts as complete."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from ray_history.archive.errors import ArchiveError, Denied, Misconfigured, NotFound, Unreachable
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.cloud import PART_SIZE, CloudStore, Patience
from ray_history.archive.stores.s3 import S3Settings
from tests.conftest import oss_variables, s3_variables
from tests.support.azurite import Azurite
from tests.support.fault_proxy import FaultProxy
from tests.support.fixtures import FaultProxyFactory
from tests.support.object_stand_in import GcsStandIn, OssStandIn
from tests.support.seaweedfs import SeaweedFS

IMPATIENT = Patience(deadline=6, stalled=1.5, attempt=60, retries=5)


def s3_settings(server: SeaweedFS, **changes: str) -> S3Settings:
    settings = resolve("s3://failures", Upstream(), s3_variables(server))
    assert isinstance(settings, S3Settings)
    return replace(settings, root=secrets.token_hex(6), **changes)  # type: ignore[arg-type]


@pytest.fixture
def proxied(seaweedfs: SeaweedFS, fault_proxy: FaultProxyFactory) -> tuple[FaultProxy, Store]:
    proxy = fault_proxy(seaweedfs.endpoint)
    store = CloudStore(s3_settings(seaweedfs, endpoint=proxy.url), IMPATIENT)
    store.check(create=True)
    return proxy, store


def test_requests_are_retried_while_a_store_answers_5xx(proxied: tuple[FaultProxy, Store]) -> None:
    proxy, store = proxied
    operations: list[Callable[[], object]] = [
        lambda: store.put("k", b"body"),
        lambda: store.get("k"),
        lambda: store.head("k"),
        lambda: list(store.list()),
        lambda: store.list_level(),
        lambda: store.get_range("k", 1, 2),
        lambda: store.delete("k"),
    ]
    for operation in operations:
        proxy.answer_5xx(2)
        operation()


def test_a_store_that_answers_nothing_but_5xx_is_unreachable_in_time(proxied: tuple[FaultProxy, Store]) -> None:
    proxy, store = proxied
    proxy.answer_5xx(None, status=500)
    before = time.monotonic()
    with pytest.raises(Unreachable, match="S3_ENDPOINT"):
        store.put("k", b"x")
    with pytest.raises(Unreachable):
        list(store.list())
    assert time.monotonic() - before < 30


def test_a_body_cut_short_is_never_taken_for_the_whole(proxied: tuple[FaultProxy, Store]) -> None:
    proxy, store = proxied
    body = os.urandom(3 * 1024 * 1024)
    store.put("k", body)
    for cut in (0, 1000, 2_000_000):
        proxy.truncate(cut, times=1, method="GET")
        assert store.get("k") == body
        proxy.truncate(cut, times=1, method="GET")
        assert store.get_range("k", 5, 2_500_000) == body[5:2_500_005]


def test_a_body_that_is_always_cut_short_is_an_error(proxied: tuple[FaultProxy, Store]) -> None:
    proxy, store = proxied
    store.put("k", os.urandom(1024 * 1024))
    proxy.truncate(1000, times=None, method="GET")
    with pytest.raises(Unreachable):
        store.get_range("k", 0, 1024 * 1024)


def test_a_truncated_listing_is_retried_or_an_error(proxied: tuple[FaultProxy, Store]) -> None:
    proxy, store = proxied
    for number in range(30):
        store.put(f"k/{number}", b"x")
    proxy.truncate(500, times=1, method="GET")
    with suppress(Unreachable):  # told is fine; an incomplete list is not
        assert len(list(store.list())) == 30
    proxy.pass_through()
    assert len(list(store.list())) == 30


@pytest.mark.parametrize("fault", ["hang", "refuse"])
def test_a_silent_or_closed_server_is_unreachable_in_time(proxied: tuple[FaultProxy, Store], fault: str) -> None:
    proxy, store = proxied
    getattr(proxy, fault)()
    before = time.monotonic()
    with pytest.raises(Unreachable):
        store.get("k")
    with pytest.raises(Unreachable):
        store.check()
    assert time.monotonic() - before < 40
    proxy.pass_through()
    store.put("k", b"back")
    assert store.get("k") == b"back"


def test_a_slow_server_is_waited_for(proxied: tuple[FaultProxy, Store]) -> None:
    proxy, store = proxied
    body = os.urandom(600_000)
    store.put("k", body)
    proxy.slow(300_000)
    assert store.get("k") == body


def test_a_put_whose_answer_was_lost_is_repeated(proxied: tuple[FaultProxy, Store]) -> None:
    proxy, store = proxied
    proxy.lose_answer(1, method="PUT")
    store.put("k", b"once")
    assert store.get("k") == b"once"


def test_a_server_killed_in_the_middle_of_an_upload_leaves_the_old_object_or_the_new(tmp_path: Path) -> None:
    server = SeaweedFS(tmp_path)
    server.start()
    try:
        store = CloudStore(s3_settings(server), Patience(deadline=20, stalled=5, attempt=60, retries=10))
        store.check(create=True)
        store.put("k", b"old")
        new = os.urandom(PART_SIZE * 3)
        reached = threading.Event()

        def body() -> Iterator[bytes]:
            yield new[: PART_SIZE * 2]
            reached.set()
            time.sleep(0.3)  # the kill falls into the upload
            yield new[PART_SIZE * 2 :]

        def restart() -> None:
            reached.wait(20)
            server.kill9()
            server.start()

        killer = threading.Thread(target=restart)
        killer.start()
        try:
            store.put_stream("k", body())
            expected = [new]
        except ArchiveError:
            expected = [b"old", new]
        killer.join()
        assert store.get("k") in expected
        assert [found.key for found in store.list()] == ["k"]
        store.put_stream("k", [new])
        assert store.get("k") == new
    finally:
        server.stop()


# Wrong settings are told within seconds, in one line that names the setting


def told(store: Store, kind: type[ArchiveError], *words: str, create: bool = False) -> None:
    before = time.monotonic()
    with pytest.raises(kind) as caught:
        store.check(create=create)
    message = str(caught.value)
    assert time.monotonic() - before < 10
    assert "\n" not in message
    for word in words:
        assert word in message


def test_wrong_s3_settings_are_reported(seaweedfs: SeaweedFS) -> None:
    good = s3_settings(seaweedfs)
    told(CloudStore(replace(good, bucket="no-such-bucket")), NotFound, "S3_BUCKET")
    told(CloudStore(replace(good, access_key_id="nobody")), Denied, "AWS_ACCESS_KEY_ID")
    told(CloudStore(replace(good, secret_access_key="wrong")), Denied, "AWS_SECRET_ACCESS_KEY")
    told(CloudStore(replace(good, endpoint="http://127.0.0.1:1")), Unreachable, "S3_ENDPOINT")
    told(CloudStore(replace(good, endpoint=good.endpoint.replace("http:", "https:"))), Unreachable, "S3_ENDPOINT")  # type: ignore[union-attr]


def test_an_s3_bucket_is_created_when_missing(seaweedfs: SeaweedFS) -> None:
    settings = replace(s3_settings(seaweedfs), bucket=f"made-{secrets.token_hex(4)}")
    told(CloudStore(settings), NotFound)
    CloudStore(settings).check(create=True)
    CloudStore(settings).check()
    CloudStore(settings).check(create=True)


def test_missing_permission_to_create_an_s3_bucket_is_reported(seaweedfs: SeaweedFS) -> None:
    settings = replace(
        s3_settings(seaweedfs),
        bucket=f"denied-{secrets.token_hex(4)}",
        access_key_id=seaweedfs.reader_access_key,
        secret_access_key=seaweedfs.reader_secret_key,
    )
    told(CloudStore(settings), NotFound)
    told(CloudStore(settings), Denied, "create it first", create=True)


def test_an_s3_identity_that_may_only_read_is_denied_writing(seaweedfs: SeaweedFS) -> None:
    writer = s3_settings(seaweedfs)
    CloudStore(writer).check(create=True)
    CloudStore(writer).put("k", b"x")
    reader = CloudStore(
        replace(writer, access_key_id=seaweedfs.reader_access_key, secret_access_key=seaweedfs.reader_secret_key)
    )
    assert reader.get("k") == b"x"
    with pytest.raises(Denied):
        reader.put("k", b"y")


def test_a_missing_azure_container_is_created_and_wrong_keys_are_reported(azurite: Azurite) -> None:
    env = {"AZURE_STORAGE_CONNECTION_STRING": azurite.connection_string}
    name = f"made-{secrets.token_hex(4)}"
    told(open_store(resolve(f"az://{name}", Upstream(), env)), NotFound, "AZURE_STORAGE_CONTAINER")
    open_store(resolve(f"az://{name}", Upstream(), env)).check(create=True)
    open_store(resolve(f"az://{name}", Upstream(), env)).check()
    wrong = azurite.connection_string.replace(azurite.account_key, "d3Jvbmc=")
    told(
        open_store(resolve(f"az://{name}", Upstream(), {"AZURE_STORAGE_CONNECTION_STRING": wrong})),
        Denied,
        "AZURE_STORAGE_CONNECTION_STRING",
    )
    nowhere = azurite.connection_string_at("http://127.0.0.1:1/devstoreaccount1")
    told(
        open_store(resolve(f"az://{name}", Upstream(), {"AZURE_STORAGE_CONNECTION_STRING": nowhere})),
        Unreachable,
        "AZURE_STORAGE_CONNECTION_STRING",
    )


def test_wrong_gcs_settings_are_reported(gcs_stand_in: GcsStandIn) -> None:
    env = {"STORAGE_EMULATOR_HOST": gcs_stand_in.base_url, "GOOGLE_BEARER_TOKEN": gcs_stand_in.writer_token}
    told(open_store(resolve("gs://missing", Upstream(), env)), NotFound, "GCS_BUCKET")
    told(open_store(resolve("gs://missing", Upstream(), env)), NotFound, "create it first", create=True)
    wrong = {**env, "GOOGLE_BEARER_TOKEN": "wrong"}
    told(open_store(resolve("gs://history", Upstream(), wrong)), Denied, "GOOGLE_APPLICATION_CREDENTIALS")


def test_oss_keys_come_from_sts_once_and_are_renewed(oss_stand_in: OssStandIn, tmp_path: Path) -> None:
    env = oss_variables(oss_stand_in, tmp_path / "token")
    store = open_store(resolve("oss://history", Upstream(), env))
    for number in range(5):
        store.put(f"k/{number}", b"x")
    assert oss_stand_in.sts.calls == 1
    oss_stand_in.sts.credential_seconds = 1  # shorter than the safety margin: asked for anew each time
    short = open_store(resolve("oss://history", Upstream(), env))
    for number in range(3):
        short.put(f"k/{number}", b"x")
        time.sleep(0.6)
    assert oss_stand_in.sts.calls >= 3


def test_oss_by_static_keys(oss_stand_in: OssStandIn) -> None:
    env = {
        "OSS_ENDPOINT": oss_stand_in.bucket_endpoint,
        "OSS_REGION": oss_stand_in.region,
        "OSS_ACCESS_KEY_ID": oss_stand_in.access_key,
        "OSS_ACCESS_KEY_SECRET": oss_stand_in.secret_key,
    }
    store = open_store(resolve("oss://history/deep", Upstream(), env))
    store.check()
    store.put("k", b"x")
    assert store.get("k") == b"x"
    wrong = {**env, "OSS_ACCESS_KEY_ID": "nobody"}
    told(open_store(resolve("oss://history", Upstream(), wrong)), Denied, "OSS_ACCESS_KEY_ID")


def test_wrong_oss_settings_are_reported(oss_stand_in: OssStandIn, tmp_path: Path) -> None:
    env = oss_variables(oss_stand_in, tmp_path / "token")
    (tmp_path / "token").write_text("not the pod's")
    told(open_store(resolve("oss://history", Upstream(), env)), Denied, "ALIBABA_CLOUD_ROLE_ARN")
    (tmp_path / "token").unlink()
    told(open_store(resolve("oss://history", Upstream(), env)), ArchiveError, "ALIBABA_CLOUD_OIDC_TOKEN_FILE")
    with pytest.raises(Misconfigured, match="OSS_ACCESS_KEY_ID"):
        open_store(resolve("oss://history", Upstream(), {"OSS_REGION": "cn-x"}))


def test_a_key_with_an_empty_part_is_an_error(oss_stand_in: OssStandIn) -> None:
    env = {
        "OSS_ENDPOINT": oss_stand_in.bucket_endpoint,
        "OSS_REGION": oss_stand_in.region,
        "OSS_ACCESS_KEY_ID": oss_stand_in.access_key,
        "OSS_ACCESS_KEY_SECRET": oss_stand_in.secret_key,
    }
    store = open_store(resolve("oss://history", Upstream(), env))
    store.put("good/k", b"x")
    bucket = oss_stand_in.buckets["history"]
    bucket.objects["bad//k"] = bucket.objects["good/k"]
    assert [found.key for found in store.list("good")] == ["good/k"]
    with pytest.raises(ArchiveError, match="bad//k"):
        list(store.list("bad"))


def test_a_full_disk_and_a_missing_permission_are_reported(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("")
    store = open_store(resolve(target.as_uri(), Upstream(), {}))
    with pytest.raises(Misconfigured, match="is not a directory"):
        store.check()
    with pytest.raises(Unreachable, match="No space left"):
        open_store(resolve((tmp_path / "d").as_uri(), Upstream(), {})).put_stream("k", _disk_full())
    assert list((tmp_path / "d" / ".tmp").iterdir()) == []


def _disk_full() -> Iterator[bytes]:
    yield b"x"
    raise OSError(28, "No space left on device")


def test_links_in_a_directory_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "dir").symlink_to(outside)
    (inside / "file").symlink_to(outside / "secret")
    store = open_store(resolve(inside.as_uri(), Upstream(), {}))
    assert list(store.list()) == []
    for key in ("dir/secret", "file"):
        with pytest.raises((Denied, NotFound, Unreachable)):
            store.get(key)
    linked = tmp_path / "linked"
    linked.symlink_to(inside)
    through = open_store(resolve(linked.as_uri(), Upstream(), {}))
    through.put("k", b"the directory itself may be a link")
    assert through.get("k").startswith(b"the directory")
