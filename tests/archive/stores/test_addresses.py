from __future__ import annotations

import pytest

from ray_history.archive.errors import Misconfigured
from ray_history.archive.stores.addresses import boolean, bucket_and_root, clean_root, endpoint_url, with_bucket_host


@pytest.mark.parametrize(
    ("text", "plain", "url"),
    [
        ("", False, None),
        ("  ", False, None),
        ("minio:9000", True, "http://minio:9000"),
        ("minio:9000", False, "https://minio:9000"),
        ("http://minio:9000/", False, "http://minio:9000"),
        (" https://[::1]:9000 ", True, "https://[::1]:9000"),
    ],
)
def test_an_endpoint_is_a_url_or_host_and_port(text: str, plain: bool, url: str | None) -> None:
    assert endpoint_url(text, "S3_ENDPOINT", plain=plain) == url


@pytest.mark.parametrize("text", ["http://:9000", "ftp://x", "http://x:port", "http://x:0", "http://x:99999"])
def test_an_invalid_endpoint_names_its_setting(text: str) -> None:
    with pytest.raises(Misconfigured, match=r"S3_ENDPOINT .* is not an address"):
        endpoint_url(text, "S3_ENDPOINT", plain=True)


@pytest.mark.parametrize(
    ("text", "value"), [("", None), (" T ", True), ("1", True), ("True", True), ("f", False), ("0", False)]
)
def test_booleans_are_those_of_go(text: str, value: bool | None) -> None:
    assert boolean(text, "S3DISABLE_SSL") is value


@pytest.mark.parametrize(("path", "root"), [("", ""), ("/", ""), ("a", "a"), ("//a//b/", "a/b")])
def test_a_root_has_no_empty_parts(path: str, root: str) -> None:
    assert clean_root(path) == root
    assert bucket_and_root("bucket", root) == ("bucket/" + root).rstrip("/")


@pytest.mark.parametrize("path", ["a/../b", ".", "a/."])
def test_a_root_stays_in_its_bucket(path: str) -> None:
    with pytest.raises(Misconfigured, match="must not contain"):
        clean_root(path)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("https://oss.example.com", "https://bucket.oss.example.com"),
        ("https://oss.example.com:8443", "https://bucket.oss.example.com:8443"),
        ("https://bucket.oss.example.com", "https://bucket.oss.example.com"),
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
    ],
)
def test_the_bucket_becomes_part_of_the_host(endpoint: str, url: str) -> None:
    assert with_bucket_host(endpoint, "bucket") == url
