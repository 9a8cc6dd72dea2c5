"""The proxy that misbehaves on command."""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import obstore
import pytest
from obstore.exceptions import BaseError, GenericError
from obstore.store import GCSStore

from .azurite import Azurite
from .fault_proxy import CutUpload, FaultProxy, Late, LoseAnswer
from .object_clients import FIVE_MIB, NO_RETRIES, keys
from .object_stand_in import GcsStandIn
from .seaweedfs import SeaweedFS
from .waiting import until

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

    from .fixtures import FaultProxyFactory

IMPATIENT: ClientConfig = {"timeout": "500ms", "connect_timeout": "500ms"}
"""Only for requests that must time out: on a busy machine others may take as long."""


@pytest.fixture
def proxy(gcs_stand_in: GcsStandIn, fault_proxy: FaultProxyFactory) -> FaultProxy:
    gcs_stand_in.buckets["history"].put("there", b"0123456789" * 1000)
    return fault_proxy(gcs_stand_in.base_url)


@pytest.fixture
def client(gcs_stand_in: GcsStandIn, proxy: FaultProxy) -> Callable[..., GCSStore]:
    def connect(retry_config: RetryConfig = NO_RETRIES, **options: Any) -> GCSStore:
        return gcs_stand_in.store(base_url=proxy.url, retry_config=retry_config, **options)

    return connect


def test_requests_pass_through_and_are_counted(proxy: FaultProxy, client: Callable[..., GCSStore]) -> None:
    store = client()
    obstore.put(store, "new", b"x" * 300_000)
    assert len(obstore.get(store, "new").bytes()) == 300_000
    assert keys(store) == ["new", "there"]
    # The client may open another connection while those before are not back in the pool.
    assert 1 <= proxy.connections <= 3
    assert (proxy.requests, proxy.faults_hit) == (3, 0)


def test_connections_are_refused_until_the_proxy_passes_them_again(
    proxy: FaultProxy, client: Callable[..., GCSStore]
) -> None:
    store = client()
    assert keys(store) == ["there"]
    proxy.refuse()
    with pytest.raises(GenericError):
        keys(store)
    with pytest.raises(GenericError):
        keys(client())
    proxy.pass_through()
    assert keys(store) == ["there"]


def test_a_hanging_proxy_runs_into_the_timeout_of_the_client(
    proxy: FaultProxy, client: Callable[..., GCSStore]
) -> None:
    proxy.hang()
    with pytest.raises(GenericError, match=r"timed out|timeout"):
        keys(client(client_options=IMPATIENT))
    proxy.pass_through()
    assert keys(client()) == ["there"]


def test_bytes_are_throttled_in_both_directions(proxy: FaultProxy, client: Callable[..., GCSStore]) -> None:
    proxy.slow(50_000)
    began = time.monotonic()
    assert len(obstore.get(client(), "there").bytes()) == 10_000
    assert time.monotonic() - began >= 0.2
    proxy.slow(5_000)
    with pytest.raises((BaseError, OSError)):
        obstore.put(client(client_options=IMPATIENT), "slow", b"x" * 10_000)


def test_only_the_next_matching_answer_is_truncated(proxy: FaultProxy, client: Callable[..., GCSStore]) -> None:
    store = client()
    proxy.truncate(100, path="there")
    assert keys(store) == ["there"]
    with pytest.raises((BaseError, OSError)):
        obstore.get(store, "there").bytes()
    assert len(obstore.get(store, "there").bytes()) == 10_000
    assert proxy.faults_hit == 1


def test_errors_are_answered_without_asking_the_server_and_then_requests_pass(
    proxy: FaultProxy, client: Callable[..., GCSStore], gcs_stand_in: GcsStandIn
) -> None:
    proxy.answer_5xx(2, status=500)
    store = client()
    for _ in range(2):
        with pytest.raises(GenericError, match="500"):
            obstore.put(store, "new", b"x" * 100_000)
    assert gcs_stand_in.requests == []
    obstore.put(store, "new", b"x" * 100_000)
    assert (proxy.requests, proxy.faults_hit) == (3, 2)


def test_an_answered_error_keeps_the_connection_alive(proxy: FaultProxy) -> None:
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


def test_the_client_retries_after_an_error(proxy: FaultProxy, client: Callable[..., GCSStore]) -> None:
    proxy.answer_5xx(1, method="GET")
    assert keys(client(retry_config={"max_retries": 2})) == ["there"]
    assert proxy.requests == 2


def test_a_lost_answer_hides_work_that_was_done(
    proxy: FaultProxy, client: Callable[..., GCSStore], gcs_stand_in: GcsStandIn
) -> None:
    proxy.lose_answer(method="PUT")
    with pytest.raises(GenericError):
        obstore.put(client(), "new", b"x")
    assert gcs_stand_in.keys("history") == ["new", "there"]


def test_signed_requests_stay_valid(seaweedfs: SeaweedFS, fault_proxy: FaultProxyFactory) -> None:
    proxy = fault_proxy(seaweedfs.endpoint)
    store = seaweedfs.store("through-proxy", endpoint=proxy.url)
    obstore.put(store, "a", b"x" * (11 * 1024 * 1024), chunk_size=FIVE_MIB)
    assert len(obstore.get(store, "a").bytes()) == 11 * 1024 * 1024
    assert keys(store) == ["a"]


def test_the_path_of_an_azurite_account_is_preserved(azurite: Azurite, fault_proxy: FaultProxyFactory) -> None:
    azurite.create_container("through-proxy")
    store = azurite.store("through-proxy", endpoint=fault_proxy(azurite.endpoint).url)
    obstore.put(store, "a", b"x")
    assert keys(store) == ["a"]


def test_a_choice_decides_about_each_request(proxy: FaultProxy, client: Callable[..., GCSStore]) -> None:
    store = client()
    proxy.choose(lambda request: LoseAnswer() if "lost" in request.target else None)
    with pytest.raises(BaseError):
        obstore.put(store, "lost", b"1")
    obstore.put(store, "other", b"2")
    assert proxy.faults_hit == 1
    assert keys(store) == ["lost", "other", "there"]


def test_an_upload_that_is_cut_leaves_no_object(seaweedfs: SeaweedFS, fault_proxy: FaultProxyFactory) -> None:
    proxy = fault_proxy(seaweedfs.endpoint)
    store = seaweedfs.store("cut", endpoint=proxy.url, retry_config=NO_RETRIES)
    obstore.put(store, "there", b"x" * 300_000, use_multipart=False)
    proxy.choose(lambda _: CutUpload(body_bytes=1000))
    with pytest.raises(BaseError):
        obstore.put(store, "cut", b"x" * 300_000, use_multipart=False)
    proxy.pass_through()
    assert keys(store) == ["there"]


def test_a_late_request_is_forwarded_at_once_when_the_fault_ends(
    proxy: FaultProxy, client: Callable[..., GCSStore]
) -> None:
    store = client()
    proxy.choose(lambda _: Late(seconds=3600))
    with ThreadPoolExecutor() as threads:
        late = threads.submit(obstore.get, store, "there")
        until(lambda: proxy.faults_hit)
        proxy.pass_through()
        assert len(late.result().bytes()) == 10_000
