"""The stand-ins for Google Cloud Storage and Alibaba Cloud OSS, seen through obstore."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime
from typing import TYPE_CHECKING

import obstore
import pytest
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from .object_clients import NO_RETRIES, keys
from .object_stand_in import GcsStandIn, OssStandIn

if TYPE_CHECKING:
    from obstore.store import S3Credential


def test_gcs_listings_come_in_pages_of_a_thousand(gcs_stand_in: GcsStandIn) -> None:
    bucket = gcs_stand_in.buckets["history"]
    for number in range(2500):
        bucket.put(f"many/{number:04}", b"")
        bucket.put(f"folders/{number:04}/x", b"")
    store = gcs_stand_in.store()
    assert keys(store, "many") == [f"many/{number:04}" for number in range(2500)]
    assert len(obstore.list_with_delimiter(store, "folders")["common_prefixes"]) == 2500
    assert len(gcs_stand_in.requests) == 6


def test_gcs_keys_with_odd_slashes_are_stored_unchanged(gcs_stand_in: GcsStandIn) -> None:
    for path in ("//lead", "/a//b", "/a/b"):
        request = urllib.request.Request(
            f"{gcs_stand_in.base_url}/history{path}",
            data=b"x",
            method="PUT",
            headers={"Authorization": f"Bearer {gcs_stand_in.token}"},
        )
        urllib.request.urlopen(request).close()
    assert gcs_stand_in.keys("history") == ["/lead", "a//b", "a/b"]


def test_gcs_checks_the_bearer_token(gcs_stand_in: GcsStandIn) -> None:
    with pytest.raises(UnauthenticatedError):
        obstore.put(gcs_stand_in.store(token="wrong"), "a", b"x")
    reader = gcs_stand_in.store(token=gcs_stand_in.reader_token)
    assert keys(reader) == []
    with pytest.raises(PermissionDeniedError):
        obstore.put(reader, "a", b"x")


def test_gcs_without_a_token_accepts_every_write() -> None:
    with GcsStandIn(token=None) as server:
        obstore.put(server.store(), "a", b"x")
        assert server.keys("history") == ["a"]


def test_gcs_reports_a_missing_bucket(gcs_stand_in: GcsStandIn) -> None:
    with pytest.raises(BaseError, match="NoSuchBucket"):
        keys(gcs_stand_in.store("not-there"))


def test_oss_refuses_path_style_addresses(oss_stand_in: OssStandIn) -> None:
    store = oss_stand_in.store(endpoint=oss_stand_in.service_endpoint, virtual_hosted_style_request=False)
    with pytest.raises(PermissionDeniedError, match="SecondLevelDomainForbidden"):
        obstore.put(store, "a", b"x")


def test_oss_serves_real_host_names_as_a_proxy(oss_stand_in: OssStandIn) -> None:
    store = oss_stand_in.store(
        endpoint="http://history.oss-cn-hangzhou.aliyuncs.com",
        client_options={"proxy_url": oss_stand_in.service_endpoint},
    )
    obstore.put(store, "a/b", b"x")
    assert oss_stand_in.keys("history") == ["a/b"]


def test_oss_refuses_unknown_access_keys(oss_stand_in: OssStandIn) -> None:
    with pytest.raises(PermissionDeniedError, match="InvalidAccessKeyId"):
        obstore.put(oss_stand_in.store(access_key="unknown"), "a", b"x")


def test_oss_needs_its_own_header_to_create_without_overwriting(oss_stand_in: OssStandIn) -> None:
    with pytest.raises(GenericError, match="NotImplemented"):
        obstore.put(oss_stand_in.store(retry_config=NO_RETRIES), "a", b"1", mode="create")
    create_only = oss_stand_in.store(client_options={"default_headers": {"x-oss-forbid-overwrite": "true"}})
    obstore.put(create_only, "a", b"1")
    with pytest.raises(AlreadyExistsError):
        obstore.put(create_only, "a", b"2")


def test_oss_issues_access_keys_for_an_oidc_token(oss_stand_in: OssStandIn) -> None:
    store = oss_stand_in.store(credential_provider=lambda: assume_role(oss_stand_in))
    obstore.put(store, "a", b"x")
    obstore.put(store, "b", b"x")
    assert oss_stand_in.keys("history") == ["a", "b"]
    assert oss_stand_in.sts.calls == 1


def test_oss_access_keys_expire(oss_stand_in: OssStandIn) -> None:
    oss_stand_in.sts.credential_seconds = 0
    ended = assume_role(oss_stand_in)
    store = oss_stand_in.store(credential_provider=lambda: ended)
    with pytest.raises(PermissionDeniedError, match="SecurityTokenExpired"):
        obstore.put(store, "a", b"x")


def test_oss_temporary_keys_need_their_security_token(oss_stand_in: OssStandIn) -> None:
    store = oss_stand_in.store(access_key=assume_role(oss_stand_in)["access_key_id"])
    with pytest.raises(PermissionDeniedError, match="InvalidSecurityToken"):
        obstore.put(store, "a", b"x")


def test_oss_refuses_a_wrong_oidc_token(oss_stand_in: OssStandIn) -> None:
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
