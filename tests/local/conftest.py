"""Directories of sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from .raylets import NAMES


@pytest.fixture
def sessions(tmp_path: Path) -> list[Path]:
    for name in NAMES:
        (tmp_path / name / "logs").mkdir(parents=True)
    return [tmp_path / name for name in NAMES]
