"""Fixtures for all tests: external servers, and stores on them opened as the product opens them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store
from tests.support.azurite import Azurite
from tests.support.object_stand_in import GcsStandIn, OssStandIn
from tests.support.seaweedfs import SeaweedFS

pytest_plugins = ["tests.support.fixtures"]

# A background job of a shell ignores SIGINT, and so would its children; but Ray cancels tasks with SIGINT.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# CI tries the same examples every time; other runs explore new ones.
settings.register_profile("ci", derandomize=True, print_blob=True)
if os.environ.get("CI") == "true":
    settings.load_profile("ci")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "real_ray" in item.fixturenames:
            item.add_marker("real_ray")
        if item.get_closest_marker("xdist_group") is None:
            # A module stays on one worker, so that what its tests share is set up once.
            item.add_marker(pytest.mark.xdist_group(item.path.relative_to(Path(__file__).parent).as_posix()))


OpenStore = Callable[[str], Store]
"""Opens a store below a root, configured by the variables that a user would set."""


def s3_variables(server: SeaweedFS) -> dict[str, str]:
    return {
        "S3_ENDPOINT": server.endpoint,
        "S3_REGION": server.region,
        "S3FORCE_PATH_STYLE": "true",
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
    }


@pytest.fixture
def open_seaweedfs(seaweedfs: SeaweedFS) -> OpenStore:
    return lambda root: open_store(resolve(f"s3://tests/{root}", Upstream(), s3_variables(seaweedfs)))


@pytest.fixture
def open_azurite(azurite: Azurite) -> OpenStore:
    env = {"AZURE_STORAGE_CONNECTION_STRING": azurite.connection_string}
    return lambda root: open_store(resolve(f"az://tests/{root}", Upstream(), env))


@pytest.fixture
def open_gcs(gcs_stand_in: GcsStandIn) -> OpenStore:
    env = {"STORAGE_EMULATOR_HOST": gcs_stand_in.base_url, "GOOGLE_BEARER_TOKEN": gcs_stand_in.writer_token}
    return lambda root: open_store(resolve(f"gs://history/{root}", Upstream(), env))


def oss_variables(server: OssStandIn, token_file: Path) -> dict[str, str]:
    token_file.write_text(server.pod_oidc_token)
    return {
        "OSS_ENDPOINT": server.bucket_endpoint,
        "OSS_REGION": server.region,
        "ALIBABA_CLOUD_ROLE_ARN": server.role_arn,
        "ALIBABA_CLOUD_OIDC_PROVIDER_ARN": server.oidc_provider_arn,
        "ALIBABA_CLOUD_OIDC_TOKEN_FILE": str(token_file),
        "ALIBABA_CLOUD_STS_ENDPOINT": server.sts_endpoint,
    }


@pytest.fixture
def open_oss(oss_stand_in: OssStandIn, tmp_path: Path) -> OpenStore:
    env = oss_variables(oss_stand_in, tmp_path / "oidc-token")
    return lambda root: open_store(resolve(f"oss://history/{root}", Upstream(), env))
