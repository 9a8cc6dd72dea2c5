"""The parts the other tests stand on do what they say, seen through obstore."""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pytest
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from .azurite import Azurite
from .fault_proxy import FaultProxy
from .object_stand_in import GcsStandIn, OssStandIn
from .processes import Process, ProcessFailed, free_ports, port_for_later, port_is_open
from .seaweedfs import SeaweedFS

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Credential

    from .fixtures import FaultProxyFactory

ONCE: RetryConfig = {"max_retries": 0}
SHORT: ClientConfig = {"timeout": "500ms", "connect_timeout": "500ms"}
FIVE_MB = 5 * 1024 * 1024


@pytest.fixture(params=["seaweedfs", "azurite", "gcs", "oss"])
def store(request: pytest.FixtureRequest) -> S3Store | AzureStore | GCSStore:
    """An empty bucket on each part in turn."""
    name = f"bucket-{time.time_ns()}"
    match request.param:
        case "seaweedfs":
            seaweedfs: SeaweedFS = request.getfixturevalue("seaweedfs")
            return seaweedfs.store(name, retry_config=ONCE)
        case "azurite":
            azurite: Azurite = request.getfixturevalue("azurite")
            azurite.create_container(name)
            return azurite.store(name, retry_config=ONCE)
        case "gcs":
            gcs: GcsStandIn = request.getfixturevalue("gcs_stand_in")
            return gcs.store(retry_config=ONCE)
        case _:
            oss: OssStandIn = request.getfixturevalue("oss_stand_in")
            return oss.store(retry_config=ONCE)


def keys(store: ObjectStore, prefix: str | None = None) -> list[str]:
    return [str(meta["path"]) for meta in obstore.list(store, prefix).collect()]


class TestEveryObjectServer:
    def test_reads_back_what_was_put(self, store: ObjectStore) -> None:
        obstore.put(store, "a/log.txt", b"0123456789")
        assert bytes(obstore.get(store, "a/log.txt").bytes()) == b"0123456789"
        assert bytes(obstore.get_range(store, "a/log.txt", start=2, end=5)) == b"234"
        assert obstore.head(store, "a/log.txt")["size"] == 10

    def test_lists_awkward_names_and_folders(self, store: ObjectStore) -> None:
        for key in ("a/b c+é&<.txt", "a/deep/x", "z"):
            obstore.put(store, key, b"x")
        assert keys(store) == ["a/b c+é&<.txt", "a/deep/x", "z"]
        folder = obstore.list_with_delimiter(store, "a")
        assert folder["common_prefixes"] == ["a/deep"]
        assert [meta["path"] for meta in folder["objects"]] == ["a/b c+é&<.txt"]

    def test_puts_a_large_object_in_parts(self, store: ObjectStore) -> None:
        body = bytes(range(256)) * (12 * 1024 * 1024 // 256)
        obstore.put(store, "large", body, chunk_size=FIVE_MB)
        assert bytes(obstore.get(store, "large").bytes()) == body

    def test_deletes_one_and_many(self, store: ObjectStore) -> None:
        for key in ("a", "b&", "c"):
            obstore.put(store, key, b"x")
        obstore.delete(store, "a")
        obstore.delete(store, ["b&", "c"])
        assert keys(store) == []
        with pytest.raises(FileNotFoundError):
            obstore.get(store, "a")

    # Not OSS, which has no If-None-Match: see TestOss.
    @pytest.mark.parametrize("store", ["seaweedfs", "azurite", "gcs"], indirect=True)
    def test_lets_one_of_many_racing_creates_win(self, store: ObjectStore) -> None:
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


class TestSeaweedFS:
    def test_keeps_its_data_over_kill_9(self, tmp_path: Path) -> None:
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

    def test_reader_may_read_but_not_write(self, seaweedfs: SeaweedFS) -> None:
        obstore.put(seaweedfs.store("shared"), "a", b"x")
        reader = seaweedfs.store(
            "shared", access_key=seaweedfs.reader_access_key, secret_key=seaweedfs.reader_secret_key
        )
        assert keys(reader) == ["a"]
        with pytest.raises(PermissionDeniedError):
            obstore.put(reader, "b", b"x")

    def test_wrong_keys_are_denied(self, seaweedfs: SeaweedFS) -> None:
        with pytest.raises(PermissionDeniedError):
            obstore.put(seaweedfs.store("shared", secret_key="wrong"), "a", b"x")

    def test_missing_bucket_is_an_error(self, seaweedfs: SeaweedFS) -> None:
        with pytest.raises(BaseError, match="NoSuchBucket"):
            keys(seaweedfs.store("not-there"))


class TestAzurite:
    def test_wrong_key_is_denied(self, azurite: Azurite) -> None:
        with pytest.raises(PermissionDeniedError):
            obstore.put(azurite.store("any", account_key="d3Jvbmc="), "a", b"x")

    def test_missing_container_is_an_error(self, azurite: Azurite) -> None:
        with pytest.raises(BaseError, match="ContainerNotFound"):
            keys(azurite.store("not-there"))

    def test_persistent_server_keeps_its_blobs_over_a_restart(self, azurite: Azurite, tmp_path: Path) -> None:
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

    def test_connection_string_names_the_endpoint(self, azurite: Azurite) -> None:
        assert f"BlobEndpoint={azurite.endpoint};" in azurite.connection_string

    def test_lock_file_names_no_registry(self) -> None:
        lock = Path(__file__).parent / "azurite_npm" / "package-lock.json"
        assert "resolved" not in lock.read_text()


class TestGcs:
    def test_pages_listings_by_a_thousand(self, gcs_stand_in: GcsStandIn) -> None:
        bucket = gcs_stand_in.buckets["history"]
        for number in range(2500):
            bucket.put(f"many/{number:04}", b"")
            bucket.put(f"folders/{number:04}/x", b"")
        store = gcs_stand_in.store()
        assert keys(store, "many") == [f"many/{number:04}" for number in range(2500)]
        assert len(obstore.list_with_delimiter(store, "folders")["common_prefixes"]) == 2500
        assert len(gcs_stand_in.requests) == 6

    def test_keeps_odd_keys_as_they_are(self, gcs_stand_in: GcsStandIn) -> None:
        for path in ("//lead", "/a//b", "/a/b"):
            request = urllib.request.Request(
                f"{gcs_stand_in.base_url}/history{path}",
                data=b"x",
                method="PUT",
                headers={"Authorization": f"Bearer {gcs_stand_in.token}"},
            )
            urllib.request.urlopen(request).close()
        assert gcs_stand_in.keys("history") == ["/lead", "a//b", "a/b"]

    def test_checks_the_token(self, gcs_stand_in: GcsStandIn) -> None:
        with pytest.raises(UnauthenticatedError):
            obstore.put(gcs_stand_in.store(token="wrong"), "a", b"x")
        reader = gcs_stand_in.store(token=gcs_stand_in.reader_token)
        assert keys(reader) == []
        with pytest.raises(PermissionDeniedError):
            obstore.put(reader, "a", b"x")

    def test_without_a_token_anybody_may_write(self) -> None:
        with GcsStandIn(token=None) as server:
            obstore.put(server.store(), "a", b"x")
            assert server.keys("history") == ["a"]

    def test_missing_bucket_is_an_error(self, gcs_stand_in: GcsStandIn) -> None:
        with pytest.raises(BaseError, match="NoSuchBucket"):
            keys(gcs_stand_in.store("not-there"))


class TestOss:
    def test_refuses_path_style(self, oss_stand_in: OssStandIn) -> None:
        store = oss_stand_in.store(endpoint=oss_stand_in.service_endpoint, virtual_hosted_style_request=False)
        with pytest.raises(PermissionDeniedError, match="SecondLevelDomainForbidden"):
            obstore.put(store, "a", b"x")

    def test_serves_real_host_names_as_a_proxy(self, oss_stand_in: OssStandIn) -> None:
        store = oss_stand_in.store(
            endpoint="http://history.oss-cn-hangzhou.aliyuncs.com",
            client_options={"proxy_url": oss_stand_in.service_endpoint},
        )
        obstore.put(store, "a/b", b"x")
        assert oss_stand_in.keys("history") == ["a/b"]

    def test_refuses_unknown_keys(self, oss_stand_in: OssStandIn) -> None:
        with pytest.raises(PermissionDeniedError, match="InvalidAccessKeyId"):
            obstore.put(oss_stand_in.store(access_key="nobody"), "a", b"x")

    def test_creates_only_with_its_own_header(self, oss_stand_in: OssStandIn) -> None:
        with pytest.raises(GenericError, match="NotImplemented"):
            obstore.put(oss_stand_in.store(retry_config=ONCE), "a", b"1", mode="create")
        create_only = oss_stand_in.store(client_options={"default_headers": {"x-oss-forbid-overwrite": "true"}})
        obstore.put(create_only, "a", b"1")
        with pytest.raises(AlreadyExistsError):
            obstore.put(create_only, "a", b"2")

    def test_hands_out_keys_for_an_oidc_token(self, oss_stand_in: OssStandIn) -> None:
        store = oss_stand_in.store(credential_provider=lambda: assume_role(oss_stand_in))
        obstore.put(store, "a", b"x")
        obstore.put(store, "b", b"x")
        assert oss_stand_in.keys("history") == ["a", "b"]
        assert oss_stand_in.sts.calls == 1

    def test_keys_end(self, oss_stand_in: OssStandIn) -> None:
        oss_stand_in.sts.credential_seconds = 0
        ended = assume_role(oss_stand_in)
        store = oss_stand_in.store(credential_provider=lambda: ended)
        with pytest.raises(PermissionDeniedError, match="SecurityTokenExpired"):
            obstore.put(store, "a", b"x")

    def test_keys_need_their_security_token(self, oss_stand_in: OssStandIn) -> None:
        store = oss_stand_in.store(access_key=assume_role(oss_stand_in)["access_key_id"])
        with pytest.raises(PermissionDeniedError, match="InvalidSecurityToken"):
            obstore.put(store, "a", b"x")

    def test_refuses_a_wrong_oidc_token(self, oss_stand_in: OssStandIn) -> None:
        with pytest.raises(urllib.error.HTTPError) as refused:
            assume_role(oss_stand_in, OIDCToken="stolen")
        with refused.value as answer:
            assert answer.code == 400
            assert json.load(answer)["Code"] == "AuthenticationFail.OIDCToken.Invalid"


def assume_role(server: OssStandIn, **changes: str) -> S3Credential:
    """Ask the STS stand-in for keys, as the product does."""
    form = {
        "Action": "AssumeRoleWithOIDC",
        "Version": "2015-04-01",
        "Format": "JSON",
        "RoleArn": server.role_arn,
        "OIDCProviderArn": server.oidc_provider_arn,
        "OIDCToken": server.sts.oidc_token,
        "RoleSessionName": "history",
        **changes,
    }
    with urllib.request.urlopen(server.sts_endpoint, data=urllib.parse.urlencode(form).encode()) as answer:
        keys = json.load(answer)["Credentials"]
    return {
        "access_key_id": keys["AccessKeyId"],
        "secret_access_key": keys["AccessKeySecret"],
        "token": keys["SecurityToken"],
        "expires_at": datetime.fromisoformat(keys["Expiration"]),
    }


class TestFaultProxy:
    @pytest.fixture
    def proxy(self, gcs_stand_in: GcsStandIn, fault_proxy: FaultProxyFactory) -> FaultProxy:
        gcs_stand_in.buckets["history"].put("there", b"0123456789" * 1000)
        return fault_proxy(gcs_stand_in.base_url)

    @pytest.fixture
    def client(self, gcs_stand_in: GcsStandIn, proxy: FaultProxy) -> Callable[..., GCSStore]:
        def connect(retry_config: RetryConfig = ONCE, **options: Any) -> GCSStore:
            return gcs_stand_in.store(base_url=proxy.url, client_options=SHORT, retry_config=retry_config, **options)

        return connect

    def test_passes_and_counts(self, proxy: FaultProxy, client: Callable[..., GCSStore]) -> None:
        store = client()
        obstore.put(store, "new", b"x" * 300_000)
        assert len(obstore.get(store, "new").bytes()) == 300_000
        assert keys(store) == ["new", "there"]
        # The client may open a second connection while its first is not back in the pool.
        assert proxy.connections in (1, 2)
        assert (proxy.requests, proxy.faults_hit) == (3, 0)

    def test_refuses(self, proxy: FaultProxy, client: Callable[..., GCSStore]) -> None:
        store = client()
        assert keys(store) == ["there"]
        proxy.refuse()
        with pytest.raises(GenericError):
            keys(store)
        with pytest.raises(GenericError):
            keys(client())
        proxy.pass_through()
        assert keys(store) == ["there"]

    def test_hangs(self, proxy: FaultProxy, client: Callable[..., GCSStore]) -> None:
        proxy.hang()
        began = time.monotonic()
        with pytest.raises(GenericError):
            keys(client())
        assert time.monotonic() - began >= 0.4
        proxy.pass_through()
        assert keys(client()) == ["there"]

    def test_is_slow(self, proxy: FaultProxy, client: Callable[..., GCSStore]) -> None:
        proxy.slow(50_000)
        began = time.monotonic()
        assert len(obstore.get(client(), "there").bytes()) == 10_000
        assert time.monotonic() - began >= 0.2
        proxy.slow(5_000)
        with pytest.raises((BaseError, OSError)):
            obstore.put(client(), "slow", b"x" * 10_000)

    def test_truncates_the_next_read_only(self, proxy: FaultProxy, client: Callable[..., GCSStore]) -> None:
        store = client()
        proxy.truncate(100, path="there")
        assert keys(store) == ["there"]
        with pytest.raises((BaseError, OSError)):
            obstore.get(store, "there").bytes()
        assert len(obstore.get(store, "there").bytes()) == 10_000
        assert proxy.faults_hit == 1

    def test_answers_errors_then_passes(
        self, proxy: FaultProxy, client: Callable[..., GCSStore], gcs_stand_in: GcsStandIn
    ) -> None:
        proxy.answer_5xx(2, status=500)
        store = client()
        for _ in range(2):
            with pytest.raises(GenericError, match="500"):
                obstore.put(store, "new", b"x" * 100_000)
        assert gcs_stand_in.requests == []
        obstore.put(store, "new", b"x" * 100_000)
        assert (proxy.requests, proxy.faults_hit) == (3, 2)

    def test_an_answered_error_keeps_the_connection_alive(self, proxy: FaultProxy) -> None:
        proxy.answer_5xx(1)
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port)
        with contextlib.closing(connection):
            statuses = []
            for _ in range(3):
                connection.request("PUT", "/history/a", body=b"x" * 100_000, headers={"Authorization": "Bearer no"})
                with connection.getresponse() as response:
                    response.read()
                    statuses.append(response.status)
        assert statuses == [503, 401, 401]
        assert proxy.connections == 1

    def test_errors_are_retried_by_the_client(self, proxy: FaultProxy, client: Callable[..., GCSStore]) -> None:
        proxy.answer_5xx(1, method="GET")
        assert keys(client(retry_config={"max_retries": 2})) == ["there"]
        assert proxy.requests == 2

    def test_loses_an_answer_after_the_work_is_done(
        self, proxy: FaultProxy, client: Callable[..., GCSStore], gcs_stand_in: GcsStandIn
    ) -> None:
        proxy.lose_answer(method="PUT")
        with pytest.raises(GenericError):
            obstore.put(client(), "new", b"x")
        assert gcs_stand_in.keys("history") == ["new", "there"]

    def test_keeps_signed_requests_valid(self, seaweedfs: SeaweedFS, fault_proxy: FaultProxyFactory) -> None:
        proxy = fault_proxy(seaweedfs.endpoint)
        store = seaweedfs.store("through-proxy", endpoint=proxy.url)
        obstore.put(store, "a", b"x" * (11 * 1024 * 1024), chunk_size=FIVE_MB)
        assert len(obstore.get(store, "a").bytes()) == 11 * 1024 * 1024
        assert keys(store) == ["a"]

    def test_keeps_the_path_of_an_azurite_account(self, azurite: Azurite, fault_proxy: FaultProxyFactory) -> None:
        azurite.create_container("through-proxy")
        store = azurite.store("through-proxy", endpoint=fault_proxy(azurite.endpoint).url)
        obstore.put(store, "a", b"x")
        assert keys(store) == ["a"]


class TestProcess:
    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        return tmp_path / "log"

    def test_failed_start_shows_the_log(self, log: Path) -> None:
        process = Process([sys.executable, "-c", "raise SystemExit('no licence')"], log=log, ready=lambda: False)
        with pytest.raises(ProcessFailed, match="no licence"):
            process.start()
        assert not process.running

    def test_slow_start_ends_at_the_deadline(self, log: Path) -> None:
        process = Process(
            [sys.executable, "-c", "import time; time.sleep(60)"], log=log, ready=lambda: False, start_seconds=0.3
        )
        with pytest.raises(ProcessFailed, match=r"not ready after 0\.3 s"):
            process.start()
        assert not process.running

    def test_kill_reaches_what_a_shell_spawned(self, log: Path) -> None:
        (port,) = free_ports(1)
        command = ["sh", "-c", f"{sys.executable} -m http.server --bind 127.0.0.1 {port}; true"]
        with Process(command, log=log, ready=lambda: port_is_open(port)):
            pass
        assert not port_is_open(port)

    def test_a_port_for_later_is_free_and_none_that_others_are_given(self) -> None:
        ports = {port_for_later() for _ in range(20)}
        assert len(ports) > 10
        assert all(20_000 <= port < 32_768 and not port_is_open(port) for port in ports)

    def test_free_ports_differ(self) -> None:
        assert len(set(free_ports(20))) == 20
