"""Every way to configure the storage."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ray_history.archive.errors import Misconfigured
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import open_store
from ray_history.archive.stores.azure import AzureSettings
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.archive.stores.gcs import GcsSettings
from ray_history.archive.stores.memory import MemorySettings
from ray_history.archive.stores.oss import OssSettings
from ray_history.archive.stores.registry import BACKENDS, MEMORY, URL_SCHEMES
from ray_history.archive.stores.s3 import S3Settings

BY_NAME = Upstream("s3")
MINIO = {
    "S3_ENDPOINT": "minio-service.minio-dev:9000",
    "S3_BUCKET": "ray-logs",
    "S3_REGION": "test",
    "S3FORCE_PATH_STYLE": "true",
    "S3DISABLE_SSL": "true",
    "AWS_ACCESS_KEY_ID": "minioadmin",
    "AWS_SECRET_ACCESS_KEY": "minio-secret",
}


def s3(url: str | None = None, upstream: Upstream = BY_NAME, **env: str) -> S3Settings:
    settings = resolve(url, upstream, env)
    assert isinstance(settings, S3Settings)
    return settings


def azure(**env: str) -> AzureSettings:
    settings = resolve("az://logs/deep", Upstream(), env)
    assert isinstance(settings, AzureSettings)
    return settings


def oss(**env: str) -> OssSettings:
    settings = resolve(None, Upstream("aliyunoss"), env)
    assert isinstance(settings, OssSettings)
    return settings


def config_file(tmp_path: Path, content: object) -> str:
    path = tmp_path / "data"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_a_url_names_the_place() -> None:
    assert resolve("file:///var/archive", Upstream(), {}) == DirectorySettings(Path("/var/archive"))
    assert resolve("file:///with%20space", Upstream(), {}) == DirectorySettings(Path("/with space"))
    assert resolve("memory://tests", Upstream(), {}) == MemorySettings("tests")
    assert resolve("gs://bucket/a/b/", Upstream(), {}) == GcsSettings("bucket", "a/b")
    assert s3("s3://bucket/deep/prefix").url == "s3://bucket/deep/prefix"


def test_a_malformed_url_is_refused() -> None:
    with pytest.raises(Misconfigured, match="invalid storage URL"):
        resolve("s3://bucket[/prefix", Upstream(), {})


def test_every_registered_backend_has_settings_that_open(tmp_path: Path) -> None:
    env = {
        "AZURE_STORAGE_CONNECTION_STRING": "AccountName=a;AccountKey=a2V5",
        "OSS_REGION": "r",
        "OSS_ACCESS_KEY_ID": "id",
        "OSS_ACCESS_KEY_SECRET": "secret",
        "GOOGLE_BEARER_TOKEN": "token",
    }
    for backend in (*BACKENDS, MEMORY):
        settings = resolve(backend.example, Upstream(), env)
        assert isinstance(settings, backend.load())
        assert settings.url == backend.example
        assert settings.open().url == settings.url
    assert URL_SCHEMES == ("file", "s3", "gs", "az", "oss")


def test_our_variable_is_the_url_too_and_the_flag_wins_over_it() -> None:
    env = {"RAY_HISTORY_STORAGE": "memory://env", "STORAGE_BACKEND": "s3"}
    assert resolve(None, Upstream(), env) == MemorySettings("env")
    assert resolve("memory://flag", Upstream(), env) == MemorySettings("flag")


def test_kuberays_minio_settings_mean_the_same() -> None:
    settings = s3(**MINIO)
    assert settings == S3Settings(
        "ray-logs", "", "http://minio-service.minio-dev:9000", "test", True, "minioadmin", "minio-secret"
    )


def test_the_environment_wins_over_upstreams_flags() -> None:
    upstream = Upstream("gcs", root="from-flag")
    assert s3(upstream=upstream, STORAGE_BACKEND="S3", STORAGE_ROOT_DIR="from-env").root == "from-env"
    assert s3(upstream=Upstream("s3", root="from-flag")).root == "from-flag"
    assert s3(RAY_ROOT_DIR="old/name").root == "old/name"


def test_an_empty_variable_counts_as_unset() -> None:
    assert s3(S3_BUCKET="", STORAGE_BACKEND="", S3_ENDPOINT="").bucket == "ray-historyserver"


def test_the_older_names_of_s3_keys_are_accepted() -> None:
    settings = s3(AWS_S3ID="id", AWS_S3SECRET="secret", AWS_S3TOKEN="token")
    assert (settings.access_key_id, settings.secret_access_key, settings.session_token) == ("id", "secret", "token")


def test_a_leading_slash_of_the_root_is_dropped() -> None:
    assert s3(STORAGE_ROOT_DIR="/path//to/logs/").root == "path/to/logs"


@pytest.mark.parametrize(
    ("env", "path_style"),
    [
        ({}, True),
        ({"S3_ENDPOINT": "http://127.0.0.1:9000"}, True),
        ({"S3_ENDPOINT": "http://[::1]:9000"}, True),
        ({"S3_ENDPOINT": "http://minio:9000"}, True),
        ({"S3_ENDPOINT": "http://minio.storage.svc:9000"}, True),
        ({"S3_ENDPOINT": "http://minio-service.minio-dev:9000"}, True),
        ({"S3_ENDPOINT": "minio-service.minio-dev", "S3DISABLE_SSL": "true"}, True),
        ({"S3_ENDPOINT": "http://minio.storage.example.com:9000"}, True),
        ({"S3_ENDPOINT": "http://oss-cn-beijing-internal.aliyuncs.com"}, False),
        ({"S3_ENDPOINT": "https://fra1.digitaloceanspaces.com:443"}, False),
        ({"S3_ENDPOINT": "https://minio.storage.svc.cluster.local"}, True),
        ({"S3_ENDPOINT": "https://oss-cn-beijing.aliyuncs.com"}, False),
        ({"S3_ENDPOINT": "https://s3.example.com", "S3FORCE_PATH_STYLE": "true"}, True),
        ({"S3_ENDPOINT": "http://minio:9000", "S3FORCE_PATH_STYLE": "false"}, False),
    ],
)
def test_the_default_path_style_is_one_that_can_work(env: dict[str, str], path_style: bool) -> None:
    assert s3(**env).path_style is path_style


def test_the_documented_example_for_minio_addresses_the_bucket_by_path() -> None:
    page = (Path(__file__).parents[2] / "docs" / "storage.md").read_text()
    (example,) = re.findall(r"^export (S3_ENDPOINT=.*minio.*)$", page, re.MULTILINE)
    settings = s3(**dict(word.split("=", 1) for word in example.split()))
    assert (settings.endpoint, settings.path_style) == ("http://minio-service.minio-dev:9000", True)


def test_an_s3_config_file_replaces_the_environments_endpoint_and_keeps_its_keys(tmp_path: Path) -> None:
    path = config_file(
        tmp_path, {"s3Bucket": "from-file", "s3Endpoint": "https://other:9000", "s3ForcePathStyle": True}
    )
    settings = s3(upstream=Upstream("s3", config_path=path), **MINIO)
    assert settings.bucket == "from-file"
    assert settings.endpoint == "https://other:9000"
    assert settings.region is None
    assert settings.access_key_id == "minioadmin"


def test_an_empty_config_file_changes_nothing(tmp_path: Path) -> None:
    for content in ("", "{}"):
        path = config_file(tmp_path, content)
        assert s3(upstream=Upstream("s3", config_path=path), **MINIO) == s3(**MINIO)


def test_gcs_takes_the_bucket_from_file_or_environment(tmp_path: Path) -> None:
    assert resolve(None, Upstream("gcs"), {"GCS_BUCKET": "b"}) == GcsSettings("b")
    path = config_file(tmp_path, {"gcsBucket": "file"})
    assert resolve(None, Upstream("gcs", path), {"GCS_BUCKET": "b"}) == GcsSettings("file")
    with pytest.raises(Misconfigured, match="set GCS_BUCKET"):
        resolve(None, Upstream("gcs"), {})


@pytest.mark.parametrize(
    "content", ['{"type": "external_account"}', '{"type": "impersonated_service_account"}', "{", None]
)
def test_an_unusable_credentials_file_of_gcs_is_reported_as_such(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "credentials.json"
    if content:
        path.write_text(content)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    with pytest.raises(Misconfigured, match="check GOOGLE_APPLICATION_CREDENTIALS"):
        open_store(GcsSettings("bucket")).check()


def test_azure_by_connection_string() -> None:
    settings = azure(
        AZURE_STORAGE_CONNECTION_STRING="DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5==;"
    )
    assert settings == AzureSettings("logs", "deep", "acc", "https://acc.blob.core.windows.net", "a2V5==")
    settings = azure(AZURE_STORAGE_CONNECTION_STRING="BlobEndpoint=http://h:1/acc;AccountName=acc;AccountKey=k")
    assert settings.endpoint == "http://h:1/acc"
    settings = azure(
        AZURE_STORAGE_CONNECTION_STRING="BlobEndpoint=https://acc.blob.x/;SharedAccessSignature=sv=1&sig=2"
    )
    assert (settings.account, settings.sas) == ("acc", "sv=1&sig=2")
    assert azure(AZURE_STORAGE_CONNECTION_STRING="UseDevelopmentStorage=true").account == "devstoreaccount1"


def test_azure_by_account_url_and_identity() -> None:
    settings = azure(AZURE_STORAGE_ACCOUNT_URL="https://acc.blob.core.windows.net/")
    assert settings == AzureSettings("logs", "deep", "acc", "https://acc.blob.core.windows.net")
    both = {
        "AZURE_STORAGE_ACCOUNT_URL": "https://acc.blob.core.windows.net",
        "AZURE_STORAGE_CONNECTION_STRING": "AccountName=other;AccountKey=k",
    }
    assert azure(**both).account == "other"
    assert azure(**both, AZURE_STORAGE_AUTH_MODE=" Workload_Identity ").account == "acc"


def test_an_azure_config_file_overlays_the_environment(tmp_path: Path) -> None:
    path = config_file(tmp_path, {"azureContainer": "file"})
    env = {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=a;AccountKey=k", "AZURE_STORAGE_CONTAINER": "env"}
    settings = resolve(None, Upstream("azureblob", path), env)
    assert isinstance(settings, AzureSettings)
    assert (settings.container, settings.account) == ("file", "a")
    assert resolve(None, Upstream("azureblob"), env).url == "az://env"


def test_oss_by_variables_or_by_file_alone(tmp_path: Path) -> None:
    settings = oss(OSS_BUCKET="b", OSS_REGION="cn-beijing", OSS_ENDPOINT="oss-cn-beijing-internal.aliyuncs.com")
    assert settings.endpoint == "https://oss-cn-beijing-internal.aliyuncs.com"
    assert oss(OSS_BUCKET="b", OSS_REGION="cn-beijing").endpoint == "https://oss-cn-beijing.aliyuncs.com"
    assert oss(OSS_BUCKET="b", OSS_ENDPOINT="oss-cn-hangzhou-internal.aliyuncs.com").region == "cn-hangzhou"
    assert oss(OSS_BUCKET="b", OSS_ENDPOINT="s3.oss-cn-hangzhou-internal.aliyuncs.com").region == "cn-hangzhou"
    with pytest.raises(Misconfigured, match=r"oss-accelerate\.aliyuncs\.com belongs to no region: set OSS_REGION"):
        oss(OSS_BUCKET="b", OSS_ENDPOINT="oss-accelerate.aliyuncs.com")
    assert oss(OSS_BUCKET="b", OSS_REGION="cn-x", OSS_ENDPOINT="oss-accelerate.aliyuncs.com").region == "cn-x"
    path = config_file(tmp_path, {"ossBucket": "f", "ossRegion": "cn-x", "ossEndpoint": "e.com"})
    assert resolve(None, Upstream("aliyunoss", path), {"OSS_BUCKET": "b"}).url == "oss://f"


def test_oss_takes_static_keys_or_the_webhooks_variables() -> None:
    base = {"OSS_BUCKET": "b", "OSS_REGION": "r"}
    assert oss(**base, ALIBABA_CLOUD_ACCESS_KEY_ID="i", ALIBABA_CLOUD_ACCESS_KEY_SECRET="s").access_key_id == "i"
    rrsa = oss(
        **base,
        ALIBABA_CLOUD_ROLE_ARN="acs:ram::1:role/r",
        ALIBABA_CLOUD_OIDC_PROVIDER_ARN="acs:ram::1:oidc-provider/p",
        ALIBABA_CLOUD_OIDC_TOKEN_FILE="/var/run/token",
    )
    assert (rrsa.role_arn, rrsa.oidc_token_file) == ("acs:ram::1:role/r", "/var/run/token")


def test_localtest_is_a_directory_that_works() -> None:
    assert resolve(None, Upstream("localtest", root="/data/x"), {}) == DirectorySettings(Path("/data/x"))
    assert resolve(None, Upstream("localtest"), {}) == DirectorySettings(Path("ray-historyserver"))


def test_secrets_are_not_shown() -> None:
    assert "minio-secret" not in repr(s3(**MINIO))
    assert "a2V5" not in repr(azure(AZURE_STORAGE_CONNECTION_STRING="AccountName=a;AccountKey=a2V5"))


@pytest.mark.parametrize(
    ("url", "upstream", "env", "fix"),
    [
        (None, Upstream(), {}, "use --storage URL"),
        (None, Upstream("s5"), {}, "use one of localtest, s3, gcs, azureblob, aliyunoss"),
        ("http://bucket", Upstream(), {}, "use one of file:///dir"),
        ("s3://", Upstream(), {}, "write s3://bucket/prefix"),
        ("file://relative/dir", Upstream(), {}, "write file:///absolute/path"),
        ("file:///", Upstream(), {}, "write file:///absolute/path"),
        ("s3://key:secret@bucket", Upstream(), {}, "put keys into the environment"),
        ("s3://b?endpoint=x", Upstream(), {}, "takes no credentials, query"),
        ("s3://b/../other", Upstream(), {}, r"must not contain '.' or '..'"),
        ("s3://b", Upstream(), {"S3_ENDPOINT": "http://:9000"}, "S3_ENDPOINT .* is not an address"),
        ("s3://b", Upstream(), {"S3_ENDPOINT": "ftp://x"}, "S3_ENDPOINT .* is not an address"),
        ("s3://b", Upstream(), {"S3_ENDPOINT": "http://x:port"}, "S3_ENDPOINT .* is not an address"),
        ("az://c", Upstream(), {}, "set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_URL"),
        ("az://c", Upstream(), {"AZURE_STORAGE_ACCOUNT_URL": "acc"}, "AZURE_STORAGE_ACCOUNT_URL .* is not a URL"),
        ("az://c", Upstream(), {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=a"}, "is incomplete"),
        ("az://c", Upstream(), {"AZURE_STORAGE_AUTH_MODE": "connection_string"}, "set AZURE_STORAGE_CONNECTION_STRING"),
        ("oss://b", Upstream(), {}, "set OSS_ENDPOINT or OSS_REGION"),
        (None, Upstream("aliyunoss"), {"OSS_REGION": "x"}, "set OSS_BUCKET"),
        (None, Upstream("s3", "/nonexistent/config"), {}, "/nonexistent/config: No such file"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_fix(
    url: str | None, upstream: Upstream, env: dict[str, str], fix: str
) -> None:
    with pytest.raises(Misconfigured, match=fix):
        resolve(url, upstream, env)


@pytest.mark.parametrize("name", ["S3FORCE_PATH_STYLE", "S3DISABLE_SSL"])
def test_a_malformed_flag_is_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """As in KubeRay's programs: a sidecar that exits takes the head out of its Service."""
    assert resolve("s3://b", Upstream(), {name: "yes please"}) == resolve("s3://b", Upstream(), {})
    assert f"{name} is 'yes please': write true or false; using the default" in caplog.text


@pytest.mark.parametrize("content", ["{", "[]", '"text"'])
def test_a_broken_config_file_is_reported(tmp_path: Path, content: str) -> None:
    with pytest.raises(Misconfigured, match="storage config file"):
        resolve(None, Upstream("s3", config_file(tmp_path, content)), {})
