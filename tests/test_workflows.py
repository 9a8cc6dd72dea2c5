"""The workflows, the Makefile and the files for GitHub: valid, pinned, and in step with the package."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from ray_history import __version__

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(GITHUB.glob("workflows/*.yml"))}
JOBS = [(name, job, workflow["jobs"][job]) for name, workflow in WORKFLOWS.items() for job in workflow["jobs"]]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([\w%-]+):", MAKEFILE, re.MULTILINE))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("github-workflows", ".github/workflows/*.yml"),
        ("dependabot", ".github/dependabot.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("citation-file-format", "CITATION.cff"),
    ],
)
def test_files_follow_their_schema(schema: str, pattern: str) -> None:
    files = [str(path) for path in ROOT.glob(pattern)]
    assert files
    command = [Path(sys.executable).parent / "check-jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stdout


def test_the_hooks_are_valid() -> None:
    command = [Path(sys.executable).parent / "pre-commit", "validate-config", ".pre-commit-config.yaml"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("path", sorted(GITHUB.glob("workflows/*.yml")), ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_and_named_by_version(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text())
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


@pytest.mark.parametrize(("workflow", "name", "job"), JOBS, ids=lambda value: value if isinstance(value, str) else "")
def test_jobs_have_a_time_limit_and_permissions_of_their_own(workflow: str, name: str, job: dict[str, Any]) -> None:
    assert WORKFLOWS[workflow]["permissions"] == {}
    assert WORKFLOWS[workflow]["concurrency"]["group"]
    assert job["timeout-minutes"] <= 60
    assert "permissions" in job


def test_every_supported_python_is_tested() -> None:
    classifiers = PYPROJECT["project"]["classifiers"]
    supported = [name.rpartition(" ")[2] for name in classifiers if re.search(r":: Python :: 3\.\d", name)]
    assert WORKFLOWS["checks"]["jobs"]["tests"]["strategy"]["matrix"]["python"] == supported


def test_every_ray_from_2_49_to_the_installed_one_is_tested() -> None:
    newest = int(version("ray").split(".")[1])
    expected = [f"2.{minor}" for minor in range(49, newest + 1)]
    assert WORKFLOWS["nightly"]["jobs"]["ray"]["strategy"]["matrix"]["ray"] == expected


def test_targets_named_in_workflows_hooks_and_documents_exist() -> None:
    paths = [*GITHUB.rglob("*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / ".ci/run", *ROOT.glob("*.md")]
    named = re.compile(r"(?:^|`|run: |entry: )make ([a-z-]+)", re.MULTILINE)
    found = {target for path in paths for target in named.findall(path.read_text())}
    assert {"test", "lint", "check"} <= found
    assert found - TARGETS == set()


def test_each_target_is_one_command() -> None:
    recipes = re.findall(r"^([\w./%-]+):.*\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)
    assert len(recipes) > 15
    assert [target for target, recipe in recipes if recipe.count("\n") > 1 or "\\\n" in recipe] == []


def test_the_citation_names_this_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
