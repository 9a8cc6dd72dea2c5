"""The API servers of these tests: the stand-in, and a real one if configured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.world import World, real_world, stand_in_world


@pytest.fixture(params=["stand-in", "real"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "real":
        made = real_world(request.getfixturevalue("real_kubeconfig"))
    else:
        made = stand_in_world(tmp_path)
    with made as found:
        yield found
