"""Skips for older Ray versions."""

from __future__ import annotations

import pytest

from . import ray_versions
from .ray_versions import needs_ray


@pytest.mark.parametrize(
    ("installed", "skipped"),
    [("2.49.2", True), ("2.9.0", True), ("2.55.0", False), ("2.60.0", False), ("3.0.0.dev0", False)],
)
def test_only_older_versions_are_skipped(installed: str, skipped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_versions, "version", lambda _: installed)
    assert needs_ray("2.55", "--proxy-server-url").args == (skipped,)
