"""Imports go one way: between the rooms of the package, and between the layers of the server."""

from __future__ import annotations

import ast

import pytest

from tests.support.source_tree import PACKAGE, Module, modules

ALLOWED = {
    "archive": set[str](),
    "collector": {"archive", "metrics"},
    "history": set[str](),
    "metrics": set[str](),
    "index": {"archive", "history", "metrics"},
    "kube": set[str](),
    "server": {"archive", "history", "index", "kube", "metrics"},
    "inject": set[str](),
    "demo": set[str](),
    "local": {"archive", "collector"},
    "cli": {"archive", "collector", "demo", "history", "index", "inject", "kube", "local", "server"},
}
"""Which other rooms a room may import. Every room may import modules beside the rooms, such as `log_setup`."""

LAYERS = (
    {"formatting", "loose_json", "settings"},
    {"http"},
    {"redaction"},
    {"auth"},
    {"sessions"},
    {"dashboard"},
    {"live"},
    {"completeness"},
    {"logs"},
    {"metrics"},
    {"api"},
    {"ui"},
    {"routes"},
    {"app", "process"},
)
"""The parts of the server; each imports only itself and those above it."""

FOREIGN = {
    "archive": {"starlette", "uvicorn", "aiohttp", "duckdb", "ray"},
    "history": {"starlette", "uvicorn", "aiohttp", "obstore", "socket", "ray", "time"},
    "metrics": {"starlette", "uvicorn", "aiohttp", "obstore", "socket", "ray", "time"},
    "index": {"starlette", "uvicorn", "aiohttp", "obstore", "duckdb", "socket", "ray", "time"},
    "kube": {"obstore", "duckdb", "ray"},
    "server": {"obstore"},
}
"""Libraries whose subject a room must not know."""

TREE = modules()


def of_room(room: str) -> list[Module]:
    return [module for module in TREE if module.name.split(".")[1:2] == [room]]


def imported(module: Module) -> set[str]:
    """The full names of the modules, and of what is taken from them, type-checking imports included."""
    return {f"{base}.{name}" if name else base for base, name in module.imports()}


def imported_below(module: Module, package: str) -> set[str]:
    """The first part below `package` of each import from it."""
    inside = (name.removeprefix(package + ".") for name in imported(module) if name.startswith(package + "."))
    return {name.partition(".")[0] for name in inside}


def test_every_folder_of_the_package_is_a_room() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/*.py")} == ALLOWED.keys()


@pytest.mark.parametrize("room", ALLOWED)
def test_rooms_import_only_along_the_arrows(room: str) -> None:
    rooms = ALLOWED.keys() - ALLOWED[room] - {room}
    assert [f"{m.name} imports {r}" for m in of_room(room) for r in imported_below(m, "ray_history") & rooms] == []


def test_modules_beside_the_rooms_import_no_room() -> None:
    beside = [module for module in TREE if module.path.parent == PACKAGE and module.path.stem != "__main__"]
    assert [module.name for module in beside if imported_below(module, "ray_history") & ALLOWED.keys()] == []


def test_every_part_of_the_server_is_in_a_layer() -> None:
    parts = {module.name.split(".")[2] for module in of_room("server") if module.name != "ray_history.server"}
    named = [part for layer in LAYERS for part in layer]
    assert parts - set(named) == set()
    assert len(named) == len(set(named))


def test_layers_of_the_server_import_only_those_above() -> None:
    level = {part: number for number, layer in enumerate(LAYERS) for part in layer}
    wrong = [
        f"{module.name} imports {other}"
        for module in of_room("server")
        if module.name != "ray_history.server"
        for other in imported_below(module, "ray_history.server")
        if level[other] > level[module.name.split(".")[2]]
    ]
    assert wrong == []


@pytest.mark.parametrize("room", FOREIGN)
def test_rooms_do_not_know_foreign_subjects(room: str) -> None:
    wrong = [
        f"{module.name} imports {name}"
        for module in of_room(room)
        for name in imported(module)
        if name.partition(".")[0] in FOREIGN[room]
    ]
    assert wrong == []


def test_relative_imports_and_those_for_type_checking_are_seen() -> None:
    source = "from typing import TYPE_CHECKING\nfrom ..errors import X\nif TYPE_CHECKING:\n    from . import cloud\n"
    module = Module(PACKAGE / "archive" / "stores" / "example.py")
    module.__dict__["tree"] = ast.parse(source)
    assert {"ray_history.archive.errors.X", "ray_history.archive.stores.cloud"} <= imported(module)
