"""Commands and names in docs/kubernetes.md."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ray_history.cli.main import ray_history as program
from tests.deploy.documents import CHART, MANIFESTS, ROOT

GUIDE = (ROOT / "docs" / "kubernetes.md").read_text()
COMMANDS = re.findall(r"^(?:ray-history [^`]*?)$(?<!\\)", GUIDE.replace("\\\n", " "), re.MULTILINE)


def test_named_files_exist() -> None:
    named = set(re.findall(r"deploy/[\w./-]*\w", GUIDE))
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("pattern", "folder"),
    [(r"`examples/([\w-]+\.yaml)`", CHART / "examples"), (r"`overlays/(\w+)`", MANIFESTS / "overlays")],
)
def test_short_names_exist(pattern: str, folder: Path) -> None:
    named = re.findall(pattern, GUIDE)
    assert named
    assert [name for name in named if not (folder / name).exists()] == []


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_valid(line: str, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text("")
    words = shlex.split(re.split(r"[|>]", line)[0])[1:]
    words = [str(tmp_path / "file.yaml") if word.endswith(".yaml") else word for word in words]
    above = program.make_context("ray-history", words)
    name, command, rest = program.resolve_command(above, [*above._protected_args, *above.args])
    assert command is not None
    with command.make_context(name, rest, parent=above) as context:
        assert context.params["storage"] or context.params["env_from"]


def test_the_commands_were_found() -> None:
    assert len(COMMANDS) >= 5


def test_values_exist_in_the_chart() -> None:
    values = (CHART / "values.schema.json").read_text()
    for path in re.findall(r"--set ([\w.]+)=", GUIDE):
        for name in path.split("."):
            assert f'"{name}"' in values
