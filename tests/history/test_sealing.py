"""What SQL can reach: the files of one session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ray_history.history.build.builder import Builder
from ray_history.history.engine import Limits
from tests.history.rebuilt import rebuild

SECRET = "the-secret-outside"


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    (folder / "secret.txt").write_text(SECRET)
    return folder


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, Callable[[str], list[Any]]]]:
    """The database that reads, and the one that builds, with their directories."""
    folder = tmp_path_factory.mktemp("inside")
    rebuilt, built = rebuild(folder), folder / "built"
    with Builder(built, Limits()) as builder:
        yield {rebuilt.directory: rebuilt.tables.rows, built: builder._engine.execute}


@pytest.mark.parametrize(
    "sql",
    [
        "from read_text('{outside}/secret.txt')",
        "from read_text('{inside}/../../{outside.name}/secret.txt')",
        "from read_parquet('http://127.0.0.1:1/x.parquet')",
        "from glob('{outside}/*')",
        "copy (select 1) to '{outside}/stolen.parquet'",
        "attach '{outside}/stolen.duckdb'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "set allowed_directories = ['/']",
        "set temp_directory = '/tmp'",
        "set lock_configuration = false",
        "reset lock_configuration",
    ],
)
def test_databases_reach_nothing_else(
    databases: dict[Path, Callable[[str], list[Any]]], outside: Path, sql: str
) -> None:
    for inside, execute in databases.items():
        with pytest.raises((duckdb.PermissionException, duckdb.InvalidInputException)):
            execute(sql.format(outside=outside, inside=inside))
    assert [path.name for path in outside.iterdir()] == ["secret.txt"]


def test_links_lead_nowhere_else(databases: dict[Path, Callable[[str], list[Any]]], outside: Path) -> None:
    for inside, execute in databases.items():
        (inside / "link.txt").symlink_to(outside / "secret.txt")
        with pytest.raises(duckdb.PermissionException):
            execute(f"from read_text('{inside}/link.txt')")
