"""Real servers, a real browser and stand-ins as pytest fixtures.

If a part is missing, its tests are skipped with the reason; on CI (`CI=true`) they fail.
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
from .prometheus import Prometheus
from .seaweedfs import SeaweedFS

FaultProxyFactory = Callable[[str], FaultProxy]


@pytest.fixture(scope="session")
def real_ray() -> str:
    """The version of the installed Ray. Every test that uses this fixture is marked `real_ray`."""
    try:
        return version("ray")
    except PackageNotFoundError as reason:
        skip_or_fail("Ray", reason)


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """A real S3 server, shared by all tests; each uses its own bucket."""
    try:
        server = SeaweedFS(tmp_path_factory.mktemp("seaweedfs"))
        server.start()
    except (PartUnavailable, ProcessFailed) as reason:
        skip_or_fail("SeaweedFS", reason)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A real Prometheus without samples."""
    try:
        server = Prometheus(tmp_path_factory.mktemp("prometheus"))
        server.start()
    except (PartUnavailable, ProcessFailed) as reason:
        skip_or_fail("Prometheus", reason)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """A real Azure Blob server in memory, shared by all tests; each uses its own container."""
    try:
        server = Azurite(tmp_path_factory.mktemp("azurite"))
        server.start()
    except (PartUnavailable, ProcessFailed) as reason:
        skip_or_fail("Azurite", reason)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A real browser, shared by all tests; its tabs share no state."""
    try:
        browser = Chromium(tmp_path_factory.mktemp("chromium"))
        browser.start()
    except (PartUnavailable, ProcessFailed) as reason:
        skip_or_fail("Chromium", reason)
    try:
        yield browser
    finally:
        browser.stop()


@pytest.fixture(scope="session")
def axe() -> Axe:
    """Accessibility checks."""
    try:
        return Axe()
    except PartUnavailable as reason:
        skip_or_fail("axe-core", reason)


@pytest.fixture(scope="session")
def real_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a real API server, shared by all tests; each uses its own namespace.

    `RAY_HISTORY_TEST_KUBECONFIG` is a variable of its own so that tests never write into whatever cluster a
    developer's KUBECONFIG happens to point at. CI runs without it: building the server takes as long as all tests.
    """
    if given := os.environ.get("RAY_HISTORY_TEST_KUBECONFIG"):
        yield Path(given)
        return
    try:
        server = KubeAPIServer(tmp_path_factory.mktemp("kube"))
    except PartUnavailable as reason:
        pytest.skip(f"no real API server is available: {reason}; RAY_HISTORY_TEST_KUBECONFIG is not set")
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
    """Call it with the address of a server to put a faulty proxy in front of it."""
    with ExitStack() as started:
        yield lambda target: started.enter_context(FaultProxy(target))


def skip_or_fail(part: str, reason: Exception) -> NoReturn:
    message = f"{part} is not available: {reason}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)
