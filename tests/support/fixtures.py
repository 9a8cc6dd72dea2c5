"""The outside world as pytest fixtures, for a conftest.py to import by name.

A part that cannot be had skips its tests with the reason, except on CI (`CI=true`), where that is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn

import pytest

from .axe import Axe
from .azurite import Azurite
from .chromium import Chromium
from .fault_proxy import FaultProxy
from .kube_api_server import KubeAPIServer
from .object_stand_in import GcsStandIn, OssStandIn
from .processes import PartUnavailable, ProcessFailed
from .seaweedfs import SeaweedFS

FaultProxyFactory = Callable[[str], FaultProxy]


@pytest.fixture(scope="session")
def real_ray() -> str:
    """The version of the installed Ray; it marks every test that runs Ray as `real_ray`."""
    try:
        return version("ray")
    except PackageNotFoundError as reason:
        not_here("Ray", reason)


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """A real S3 server, one for the whole run; use a bucket of your own."""
    try:
        server = SeaweedFS(tmp_path_factory.mktemp("seaweedfs"))
        server.start()
    except (PartUnavailable, ProcessFailed) as reason:
        not_here("SeaweedFS", reason)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """A real Azure Blob server in memory, one for the whole run; use a container of your own."""
    try:
        server = Azurite(tmp_path_factory.mktemp("azurite"))
        server.start()
    except (PartUnavailable, ProcessFailed) as reason:
        not_here("Azurite", reason)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A real browser, one for the whole run; each of its tabs knows nothing of the others."""
    try:
        browser = Chromium(tmp_path_factory.mktemp("chromium"))
        browser.start()
    except (PartUnavailable, ProcessFailed) as reason:
        not_here("Chromium", reason)
    try:
        yield browser
    finally:
        browser.stop()


@pytest.fixture(scope="session")
def axe() -> Axe:
    """Checks of accessibility."""
    try:
        return Axe()
    except PartUnavailable as reason:
        not_here("axe-core", reason)


@pytest.fixture(scope="session")
def real_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a real API server, one for the whole run; use a namespace of your own.

    `RAY_HISTORY_TEST_KUBECONFIG` is a variable of its own so that tests never write into whatever cluster a
    developer's KUBECONFIG happens to point at. Not in CI: building its program takes as long as all tests.
    """
    if given := os.environ.get("RAY_HISTORY_TEST_KUBECONFIG"):
        yield Path(given)
        return
    try:
        server = KubeAPIServer(tmp_path_factory.mktemp("kube"))
    except PartUnavailable as reason:
        pytest.skip(f"a real API server cannot be had here: {reason}; RAY_HISTORY_TEST_KUBECONFIG names none")
    with server:
        yield server.kubeconfig


@pytest.fixture
def gcs_stand_in() -> Iterator[GcsStandIn]:
    """A stand-in for Google Cloud Storage with an empty bucket `history`."""
    with GcsStandIn() as server:
        yield server


@pytest.fixture
def oss_stand_in() -> Iterator[OssStandIn]:
    """A stand-in for Alibaba Cloud OSS and its STS with an empty bucket `history`."""
    with OssStandIn() as server:
        yield server


@pytest.fixture
def fault_proxy() -> Iterator[FaultProxyFactory]:
    """Call it with the address of a server to get a proxy that misbehaves on command."""
    with ExitStack() as started:
        yield lambda target: started.enter_context(FaultProxy(target))


def not_here(part: str, reason: Exception) -> NoReturn:
    message = f"{part} cannot be had here: {reason}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
