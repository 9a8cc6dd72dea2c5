"""Tests that need a feature which older Ray versions lack; the nightly run tries every version from 2.49."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import pytest


def needs_ray(minimum: str, feature: str) -> pytest.MarkDecorator:
    """Skip on a Ray older than the minimum, which is the first version with the feature."""
    return pytest.mark.skipif(_installed() < _parts(minimum), reason=f"{feature} exists since Ray {minimum}")


def _installed() -> tuple[int, ...]:
    try:
        return _parts(version("ray"))
    except PackageNotFoundError:
        return _parts("0.0")


def _parts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])
