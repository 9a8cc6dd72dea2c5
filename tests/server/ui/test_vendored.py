"""Files of others in the tree are unchanged, and come with their license."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from ray_history.server import ui

VENDORED = Path(ui.__file__).parent / "vendored"


@pytest.mark.parametrize(
    "folder", [folder for folder in VENDORED.iterdir() if folder.is_dir()], ids=lambda one: one.name
)
def test_vendored_files_have_the_noted_digests(folder: Path) -> None:
    noted = dict(
        re.findall(r"^\| (\S+) \| \S+ \| ([0-9a-f]{64}) \|$", (folder / "README.md").read_text(), re.MULTILINE)
    )
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
    found.pop("README.md")
    assert found == noted
    assert "LICENSE" in found
