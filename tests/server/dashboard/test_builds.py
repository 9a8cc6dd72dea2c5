"""The choice of a frontend build, and the files that are served from it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ray_history.server.dashboard.builds import Frontends
from ray_history.server.http.responses import ApiError

VERSIONS = ("2.49.0", "2.55.1", "2.58.0")


def write_build(directory: Path, **files: str) -> Path:
    for name, text in {"index.html": f"page of {directory.name}", **files}.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return directory


@pytest.fixture
def frontends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Frontends:
    """Three versions, and no installed Ray."""
    for version in VERSIONS:
        write_build(tmp_path / version)
    monkeypatch.setitem(sys.modules, "ray", None)
    return Frontends([tmp_path])


@pytest.mark.parametrize(
    ("session", "build"),
    [
        ("2.55.1", "2.55.1"),
        ("2.50.0", "2.55.1"),
        ("2.60.0", "2.58.0"),
        ("2.40.0", "2.49.0"),
        ("2.55.1.dev0+g1234", "2.55.1"),
        ("unknown", "2.49.0"),
        (None, "2.58.0"),
    ],
)
def test_the_nearest_version_is_chosen(frontends: Frontends, session: str | None, build: str) -> None:
    found = frontends.nearest(session)
    assert found is not None
    assert (found.version, found.page) == (build, f"page of {build}")


def test_versions_are_listed_from_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for version in ("2.9.0", "2.58.0", "2.100.1"):
        write_build(tmp_path / version)
    assert Frontends([tmp_path]).versions == ["2.100.1", "2.58.0", "2.9.0"]


def test_a_build_that_is_added_while_the_server_runs_is_found(frontends: Frontends, tmp_path: Path) -> None:
    assert frontends.versions == ["2.58.0", "2.55.1", "2.49.0"]
    before = tmp_path.stat().st_mtime_ns
    write_build(tmp_path / "2.60.0")
    os.utime(tmp_path, ns=(before, before + 1))  # a clock may be too coarse to tell
    assert frontends.versions[0] == "2.60.0"
    found = frontends.chosen("2.55.1", "2.60.0")
    assert found is not None
    assert found.version == "2.60.0"


def test_a_directory_of_builds_may_be_made_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    frontends = Frontends([tmp_path / "later"])
    assert frontends.versions == []
    write_build(tmp_path / "later" / "2.60.0")
    assert frontends.versions == ["2.60.0"]


def test_a_user_may_choose_another_version(frontends: Frontends) -> None:
    found = frontends.chosen("2.55.1", "2.49.0")
    assert found is not None
    assert found.version == "2.49.0"
    assert frontends.chosen("2.55.1", "") == frontends.chosen("2.55.1", None) == frontends.nearest("2.55.1")
    with pytest.raises(ApiError) as refused:
        frontends.chosen("2.55.1", "../../etc")
    assert refused.value.status == 404
    assert "2.58.0, 2.55.1, 2.49.0" in str(refused.value)


def test_a_directory_may_be_a_build_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    builds = [write_build(tmp_path / "one" / "2.55.1"), write_build(tmp_path / "two" / "my-build")]
    assert Frontends(builds).versions == ["2.55.1", "0"]


def test_the_first_directory_wins(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_build(tmp_path / name / "2.55.1")
    found = Frontends([tmp_path / "first", tmp_path / "second"]).builds["2.55.1"]
    assert found.directory == tmp_path / "first" / "2.55.1"


def test_other_directories_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "2.55.1").mkdir()
    write_build(tmp_path / "backup")
    (tmp_path / "2.56.0").write_text("a file")
    assert Frontends([tmp_path, tmp_path / "missing", tmp_path / "2.56.0"]).versions == []


def test_without_a_build_the_page_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    frontends = Frontends()
    assert frontends.nearest("2.55.1") is None
    assert b"ray-history dashboard add 2.55.1<" in bytes(frontends.missing("2.55.1").body)
    assert b"ray-history dashboard add VERSION<" in bytes(frontends.missing(None).body)
    assert b"<script>" not in bytes(frontends.missing("<script>").body)


def test_the_build_of_the_installed_ray_is_found(real_ray: str) -> None:
    build = Frontends().builds[real_ray]
    assert "<html" in build.page
    assert any(name.startswith("static/js/") for name in build.files)
    assert not any(name.endswith(".map") for name in build.files)


def test_hashed_files_are_cached_forever_and_others_never(tmp_path: Path) -> None:
    write_build(tmp_path / "2.49.0", **{"static/js/old.js": "old"})
    write_build(tmp_path / "2.58.0", **{"static/js/new.js": "new", "favicon.ico": "icon", "static/js/new.js.map": "{}"})
    frontends = Frontends([tmp_path])
    for name in ("static/js/old.js", "static/js/new.js"):
        answer = frontends.file(name)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["content-type"].startswith("text/javascript")
    assert frontends.file("favicon.ico").headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("name", ["static/js/new.js.map", "../secret", "/etc/passwd", "static", ""])
def test_only_files_of_a_build_are_served(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")
    write_build(tmp_path / "builds" / "2.58.0", **{"static/js/new.js.map": "{}"})
    with pytest.raises(ApiError) as refused:
        Frontends([tmp_path / "builds"]).file(name)
    assert refused.value.status == 404
