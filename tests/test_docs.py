"""The documentation is complete, and its links, paths and commands are valid."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import duckdb
import pytest

import ray_history
from ray_history.cli.main import ray_history as command
from ray_history.collector.ingest.status_pages import METRICS
from ray_history.collector.settings import SETTINGS
from ray_history.history.build.builder import Builder
from ray_history.history.engine import Limits
from tests.reference_pages import PAGES, PARTS, commands

ROOT = Path(__file__).parent.parent
ALL = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WRITTEN = [path for path in ALL if path.name not in PAGES]
DOCS = "\n".join(path.read_text() for path in ALL)
SOURCES = sorted(path for path in Path(ray_history.__file__).parent.rglob("*.py") if path.parent.name != "jobs")


COMMANDS = {"ray-history": command, **dict(commands(command, "ray-history"))}


def options() -> list[str]:
    parameters = (option for each in COMMANDS.values() for option in each.params if isinstance(option, click.Option))
    return sorted({name for option in parameters for name in option.opts})


def variables() -> list[str]:
    pattern = re.compile(r'(?:env|environ)(?:\.get\(|\[)"([A-Z][A-Z0-9_]+)"|pick\("\w+", "([A-Z0-9_]+)"\)')
    read = {a or b for path in SOURCES for a, b in pattern.findall(path.read_text())}
    for parameter in (parameter for each in COMMANDS.values() for parameter in each.params):
        read |= {parameter.envvar} if isinstance(parameter.envvar, str) else set(parameter.envvar or ())
    return sorted(read | {setting.variable for setting in SETTINGS})


@pytest.mark.parametrize("option", options())
def test_every_option_is_documented(option: str) -> None:
    assert f"`{option}`" in DOCS or f"`{option} " in DOCS


@pytest.mark.parametrize("variable", variables())
def test_every_environment_variable_is_documented(variable: str) -> None:
    assert variable in DOCS


def test_variables_are_found_in_the_source() -> None:
    assert {"S3_BUCKET", "OSS_REGION", "RAY_HISTORY_STORAGE"} <= set(variables())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    assert name in DOCS


PAGES_WITH_LINKS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_links_between_documents_are_valid() -> None:
    broken = [
        f"{page.name}: {target}#{anchor}"
        for page in PAGES_WITH_LINKS
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text())
        if not (found := page.parent / target if target else page).exists() or (anchor and anchor not in anchors(found))
    ]
    assert broken == []


def test_paths_in_documents_exist() -> None:
    named = re.compile(r"(?<![\w./-])(?:src|tests|deploy|bench)/[\w./-]*\w")
    missing = [
        f"{page.name}: {path}"
        for page in PAGES_WITH_LINKS
        for path in named.findall(page.read_text())
        if not (ROOT / path).exists()
    ]
    assert missing == []


def proofs() -> list[str]:
    """The tests that documents name, as PATH::NAME."""
    return sorted(set(re.findall(r"tests/[\w/]+\.py::\w+", DOCS)))


@pytest.mark.parametrize("proof", proofs())
def test_tests_that_documents_name_exist(proof: str) -> None:
    path, _, name = proof.partition("::")
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_each_limit_of_the_threat_model_names_a_test() -> None:
    model = (ROOT / "docs" / "security.md").read_text().partition("\n## Threat model\n")[2]
    rows = [line for line in model.splitlines() if line.startswith("| ") and "cannot |" not in line]
    assert len(rows) > 30
    assert [row for row in rows if "::test_" not in row] == []


def test_every_column_of_the_tables_is_documented(tmp_path: Path) -> None:
    with Builder(tmp_path / "tables", Limits()) as builder:
        builder.finish()
    text = (ROOT / "docs" / "tables.md").read_text()
    documented = {match[1]: match[2] for match in re.finditer(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE)}
    for file in (tmp_path / "tables").glob("*.parquet"):
        columns = {name for name, *_ in duckdb.sql(f"describe from '{file}'").fetchall()}
        assert columns - set(re.findall(r"`(\w+)`", documented[file.stem])) == set(), file.stem


@pytest.mark.parametrize("metric", [metric.name for metric in METRICS])
def test_every_metric_is_documented(metric: str) -> None:
    assert metric in DOCS


def test_defaults_of_options_are_in_the_generated_reference_only() -> None:
    headers = re.compile(r"^\| (?:option|flag) \|.* default .*$", re.MULTILINE)
    assert {path.name: found for path in WRITTEN if (found := headers.findall(path.read_text()))} == {}


@pytest.mark.parametrize("name", [*PAGES, *PARTS])
def test_reference_pages_are_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == (PAGES | PARTS)[name](), "run `make docs`"


def documented_commands() -> list[str]:
    """The command lines of our programs in the documents."""
    blocks = (block for path in WRITTEN for block in re.findall(r"```bash\n(.*?)```", path.read_text(), re.DOTALL))
    lines = (line for block in blocks for line in block.replace("\\\n", " ").splitlines())
    program = re.compile(r"(?:\S+=\S+ )*(?:\.venv/bin/)?((?:ray-history|collector|historyserver) .*)")
    return sorted({found[1] for line in lines if (found := program.match(line))})


@pytest.mark.parametrize("line", documented_commands())
def test_documented_commands_are_valid(line: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    words = shlex.split(re.split(r"\s[|>&]", line)[0], comments=True)
    words = [
        re.sub(r"^[\w./-]+\.(yaml|json|pem|crt|key)$", str(file), word) for word in words if word not in ("…", "...")
    ]
    start = {"ray-history": [], "collector": ["collect"], "historyserver": ["serve"]}[words[0]]
    name, group, rest = "ray-history", command, [*start, *words[1:]]
    while isinstance(group, click.Group):
        above = group.make_context(name, rest)
        name, group, rest = group.resolve_command(above, [*above._protected_args, *above.args])
    assert isinstance(group, click.Command)
    with group.make_context(name, rest, parent=above) as context:  # closes the files that it opened
        assert context.info_name == name


def test_commands_are_found_in_the_documents() -> None:
    assert len(documented_commands()) > 20
