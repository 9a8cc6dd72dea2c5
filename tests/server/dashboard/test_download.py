"""Builds from the package index: which files are extracted from a wheel, and which wheels are refused."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from ray_history.server.dashboard.builds import Frontends
from ray_history.server.dashboard.download import CannotAdd, add_dashboard

INSIDE = "ray/dashboard/client/build/"
VERSION = "2.58.1"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of packages in a directory, the only one that pip knows."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return folder


def write_wheel(index: Path, files: dict[str, str]) -> None:
    metadata = f"ray-{VERSION}.dist-info"
    with zipfile.ZipFile(index / f"ray-{VERSION}-cp311-cp311-manylinux2014_x86_64.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{metadata}/METADATA", f"Metadata-Version: 2.1\nName: ray\nVersion: {VERSION}\n")
        wheel.writestr(f"{metadata}/WHEEL", "Wheel-Version: 1.0\nTag: cp311-cp311-manylinux2014_x86_64\n")
        wheel.writestr(f"{metadata}/RECORD", "")


def test_only_the_pages_of_the_dashboard_are_taken_from_the_wheel(tmp_path: Path, index: Path) -> None:
    files = {
        f"{INSIDE}index.html": "<html>",
        f"{INSIDE}static/js/main.js": "x",
        f"{INSIDE}static/js/main.js.map": "{}",
        f"{INSIDE}../escaped.txt": "x",
        "ray/__init__.py": "",
    }
    write_wheel(index, files)
    dashboards = tmp_path / "dashboards"
    target = add_dashboard(VERSION, dashboards)
    assert target == dashboards / VERSION
    found = sorted(path.relative_to(dashboards).as_posix() for path in dashboards.rglob("*") if path.is_file())
    assert found == [f"{VERSION}/index.html", f"{VERSION}/static/js/main.js"]
    assert VERSION in Frontends([dashboards]).versions


def test_an_installed_version_is_not_fetched_again(tmp_path: Path, index: Path) -> None:
    page = tmp_path / VERSION / "index.html"
    page.parent.mkdir()
    page.write_text("mine")
    assert add_dashboard(VERSION, tmp_path) == page.parent  # the index is empty
    assert page.read_text() == "mine"


@pytest.mark.parametrize("version", ["2.58", "latest", "2.58.1; rm", "../2.58.1", "2.58.1 --index-url=http://x"])
def test_a_version_is_three_numbers(tmp_path: Path, version: str) -> None:
    with pytest.raises(CannotAdd, match=r"2\.58\.1"):
        add_dashboard(version, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_version_that_the_index_lacks_is_reported_and_leaves_nothing(tmp_path: Path, index: Path) -> None:
    dashboards = tmp_path / "dashboards"
    with pytest.raises(CannotAdd, match=r"ray 2\.58\.1.*No matching distribution"):
        add_dashboard(VERSION, dashboards)
    assert list(dashboards.iterdir()) == []


def test_a_wheel_without_a_dashboard_is_refused(tmp_path: Path, index: Path) -> None:
    write_wheel(index, {"ray/__init__.py": ""})
    dashboards = tmp_path / "dashboards"
    with pytest.raises(CannotAdd, match="dashboard"):
        add_dashboard(VERSION, dashboards)
    assert list(dashboards.iterdir()) == []
