"""The rooms of the architecture: imports go one way only."""

from __future__ import annotations

import ast
from pathlib import Path

import ray_history

PACKAGE = Path(ray_history.__file__).parent

ALLOWED = {
    "archive": {"archive"},
    "collector": {"collector", "archive"},
    "history": {"history"},
    "index": {"index", "archive", "history"},
    "kube": {"kube"},
    "server": {"server", "index", "history", "archive", "kube"},
}
"""Which rooms a room may import; `cli` wires all of them together and is in none."""

FOREIGN = {
    "archive": {"starlette", "uvicorn", "aiohttp", "duckdb", "ray"},
    "history": {"starlette", "uvicorn", "aiohttp", "obstore", "socket", "ray", "time"},
    "index": {"starlette", "uvicorn", "aiohttp", "obstore", "duckdb", "socket", "ray", "time"},
    "kube": {"obstore", "duckdb", "ray"},
    "server": {"obstore"},
}
"""Libraries whose subject a room must not know."""


def imported_modules(path: Path) -> set[str]:
    parts = ("ray_history", *path.relative_to(PACKAGE).with_suffix("").parts)
    package = parts if path.name == "__init__.py" else parts[:-1]
    package = package[:-1] if path.name == "__init__.py" else package
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join([*base, *((node.module or "").split(".") if node.module else [])])
            found.add(module)
            found.update(f"{module}.{alias.name}" for alias in node.names)
    return found


def rooms() -> list[str]:
    return [room for room in ALLOWED if (PACKAGE / room).is_dir()]


def test_rooms_import_only_along_the_arrows() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {module}"
        for room in rooms()
        for path in (PACKAGE / room).rglob("*.py")
        for module in imported_modules(path)
        if module.startswith("ray_history.")
        and (other := module.split(".")[1]) != "__version__"
        and (other == "cli" or (other in ALLOWED and other not in ALLOWED[room]))
    ]
    assert wrong == []


def test_rooms_do_not_know_foreign_subjects() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {module}"
        for room in rooms()
        for path in (PACKAGE / room).rglob("*.py")
        for module in imported_modules(path)
        if module.split(".")[0] in FOREIGN.get(room, set())
    ]
    assert wrong == []


def test_the_check_sees_relative_imports() -> None:
    assert "ray_history.archive.errors" in imported_modules(PACKAGE / "archive" / "stores" / "interface.py")
    assert "ray_history.archive.settings" in imported_modules(PACKAGE / "archive" / "stores" / "__init__.py")
