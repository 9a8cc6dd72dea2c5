"""Measures of a source tree: modules, imports, functions, words.

`python -m tests.support.source_tree [FOLDER]` prints them.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import complexipy

import ray_history

PACKAGE = Path(ray_history.__file__).parent
ODD_WORDS = re.compile(r"\b(told|whoever|nobody|wish)\b", re.IGNORECASE)
MAX_FUNCTION_LINES = 60
MAX_CLOSURES = 2
MAX_UNPACKED = 6
MAX_COGNITIVE = 15

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Function(NamedTuple):
    """A function or method, with what makes it hard to read."""

    place: str
    lines: int
    closures: int
    widest_unpacking: int
    is_private: bool


@dataclass(frozen=True)
class Module:
    """One Python file of a package."""

    path: Path
    package: Path = field(default=PACKAGE)

    @cached_property
    def name(self) -> str:
        """The name that imports it."""
        parts = (self.package.name, *self.path.relative_to(self.package).with_suffix("").parts)
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def source(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def line_count(self) -> int:
        return self.source.count("\n")

    def imports(self) -> Iterator[tuple[str, str]]:
        """What it imports, as module and name, those for type checking and within functions included."""
        parts = self.name.split(".")
        package = parts if self.path.name == "__init__.py" else parts[:-1]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, "") for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                module = ".".join([*above, *([node.module] if node.module else [])])
                yield from ((module, alias.name) for alias in node.names)

    def functions(self) -> Iterator[Function]:
        for node in ast.walk(self.tree):
            if isinstance(node, _Function):
                yield Function(
                    f"{self.path.relative_to(self.package)}:{node.lineno} {node.name}",
                    (node.end_lineno or node.lineno) - node.lineno + 1,
                    sum(isinstance(inner, _Function) for inner in ast.walk(node)) - 1,
                    max(_unpackings(node), default=0),
                    node.name.startswith("_") and not node.name.endswith("__"),
                )

    def cognitive_complexities(self) -> Iterator[tuple[str, int]]:
        """Functions by name, methods as `Class::method`."""
        for function in complexipy.file_complexity(str(self.path)).functions:
            yield f"{self.path.relative_to(self.package)} {function.name}", function.complexity


def _unpackings(function: _Function) -> Iterator[int]:
    """How many names each unpacking of a tuple binds."""
    for node in ast.walk(function):
        if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Store):
            yield len(node.elts)


def modules(folder: Path = PACKAGE) -> list[Module]:
    """All modules below a folder of the package, but for the scripts that the demo runs as jobs."""
    return [Module(path) for path in sorted(folder.rglob("*.py")) if path.parent.name != "jobs"]


def import_graph(tree: Sequence[Module]) -> dict[str, set[str]]:
    """Each module with the modules of the same tree that it imports."""
    names = {module.name for module in tree}
    graph: dict[str, set[str]] = {}
    for module in tree:
        found = (f"{base}.{name}" if f"{base}.{name}" in names else base for base, name in module.imports())
        graph[module.name] = {other for other in found if other in names and other != module.name}
    return graph


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import one another, found by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in index:
            visit(name)
    return found


def odd_words(folder: Path = PACKAGE) -> list[str]:
    """Lines with words of a dialect that this project once had."""
    kinds = (".py", ".sql", ".html", ".js", ".css")
    return [
        f"{path.relative_to(folder)}:{number}: {line.strip()}"
        for path in sorted(folder.rglob("*"))
        if path.suffix in kinds
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for _ in ODD_WORDS.finditer(line)
    ]


def _report(folder: Path) -> Iterator[str]:
    tree = modules(folder)
    lines = [module.line_count for module in tree]
    functions = [function for module in tree for function in module.functions()]
    lengths = sorted(function.lines for function in functions)
    yield f"{len(tree)} modules, {sum(lines):,} lines; median {statistics.median(lines):.0f}, longest {max(lines)}"
    small = [module for module in tree if module.line_count < MAX_FUNCTION_LINES and module.path.name != "__init__.py"]
    yield f"{len(small)} modules under 60 lines: {', '.join(str(m.path.relative_to(folder)) for m in small)}"
    longest = lengths[len(lengths) * 95 // 100]
    yield f"{len(functions)} functions; median {statistics.median(lengths):.0f}, 95 % up to {longest} lines"
    private = sum(function.is_private for function in functions)
    yield f"{private * 1000 / sum(lines):.1f} private functions per 1,000 lines"
    comments = sum(bool(re.match(r"\s*#", line)) for module in tree for line in module.source.splitlines())
    yield f"{comments * 100 / sum(lines):.1f} full-line comments per 100 lines"
    for function in functions:
        if function.lines > 40 or function.closures > MAX_CLOSURES or function.widest_unpacking > MAX_UNPACKED:
            yield (
                f"  {function.place}: {function.lines} lines, {function.closures} closures, "
                f"unpacks {function.widest_unpacking}"
            )
    for module in tree:
        for place, complexity in module.cognitive_complexities():
            if complexity > MAX_COGNITIVE:
                yield f"  {place}: cognitive complexity {complexity}"
    yield from (f"  cycle: {', '.join(group)}" for group in cycles(import_graph(tree)))
    yield f"{len(odd_words(folder))} odd words"
    yield from (f"  {line}" for line in odd_words(folder))


if __name__ == "__main__":
    print("\n".join(_report(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else PACKAGE)))  # noqa: T201
