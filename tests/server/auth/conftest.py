"""One archive for all tests of access."""

from __future__ import annotations

import pytest

from ray_history.archive.stores import Store
from tests.server.auth.people import archive


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """No test changes it."""
    return archive(tmp_path_factory.mktemp("people"))
