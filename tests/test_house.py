"""The shape of the source tree: sizes, imports, names and words, as CONTRIBUTING.md asks for."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.support.source_tree import (
    MAX_CLOSURES,
    MAX_COGNITIVE,
    MAX_FUNCTION_LINES,
    MAX_UNPACKED,
    PACKAGE,
    Module,
    cycles,
    import_graph,
    modules,
    odd_words,
)

ROOT = Path(__file__).parent.parent
MAX_MODULES_PER_FOLDER = 20
MAX_TEMPLATE_LINE = 160
MAX_ODD_WORDS = 10

VAGUE = {"asked", "asking", "kept", "known", "nobody", "somebody", "tell", "tells", "told", "whoever", "wish"}
"""Participles, pronouns and the like that do not name a thing: not in names of modules, classes and functions."""
IDIOMS = {"_LastKnown", "_last_known"}

TREE = modules()


def test_no_folder_has_too_many_modules() -> None:
    counts = Counter(module.path.parent for module in TREE if module.path.name != "__init__.py")
    assert {str(folder): count for folder, count in counts.items() if count > MAX_MODULES_PER_FOLDER} == {}


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    assert cycles(import_graph(TREE)) == []


def test_a_circle_of_imports_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str]()}
    assert cycles(graph) == [["b", "c"]]


def test_functions_are_short() -> None:
    functions = (function for module in TREE for function in module.functions())
    assert [f"{f.place}: {f.lines} lines" for f in functions if f.lines > MAX_FUNCTION_LINES] == []


def test_functions_hold_few_closures() -> None:
    functions = (function for module in TREE for function in module.functions())
    assert [f"{f.place}: {f.closures} closures" for f in functions if f.closures > MAX_CLOSURES] == []


def test_rows_of_many_columns_have_names() -> None:
    functions = (function for module in TREE for function in module.functions())
    assert [f"{f.place}: {f.widest_unpacking} names" for f in functions if f.widest_unpacking > MAX_UNPACKED] == []


def test_functions_are_simple() -> None:
    complexities = (found for module in TREE for found in module.cognitive_complexities())
    assert [f"{place}: {complexity}" for place, complexity in complexities if complexity > MAX_COGNITIVE] == []


def test_lines_of_templates_can_be_read() -> None:
    long = [
        f"{path.relative_to(PACKAGE)}:{number}: {len(line)} characters"
        for path in sorted(PACKAGE.rglob("*.html"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > MAX_TEMPLATE_LINE
    ]
    assert long == []


def test_the_source_speaks_plain_english() -> None:
    lines = odd_words()
    assert len(lines) <= MAX_ODD_WORDS, "\n".join(lines)


def test_names_are_nouns_and_verbs_of_the_domain() -> None:
    names = [(module.name, name) for module in TREE for name in [module.path.stem, *_defined(module)]]
    assert [f"{module}: {name}" for module, name in names if _words(name) & VAGUE and name not in IDIOMS] == []


def _defined(module: Module) -> Iterator[str]:
    """The names of its classes and functions."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    yield from (node.name for node in ast.walk(module.tree) if isinstance(node, kinds))


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)}


GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
TERMS = re.findall(r"\*\*([\w ]+)\*\*", GLOSSARY)


def test_each_term_of_the_glossary_is_defined_once() -> None:
    assert [term for term, count in Counter(TERMS).items() if count > 1] == []
    assert len(TERMS) > 20


def test_terms_of_the_glossary_are_used() -> None:
    documents = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    written = "\n".join(path.read_text() for path in documents if path.name != "glossary.md")
    used = (written + "\n".join(module.source for module in TREE)).lower().replace("_", " ")
    used = " ".join(used.split())
    assert [term for term in TERMS if term.lower() not in used] == []


ARCHITECTURE = ROOT / "docs" / "architecture.md"
ROOMS = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


def described_modules() -> list[str]:
    """The modules in the trees of docs/architecture.md, as paths below the package without `.py`."""
    blocks = re.findall(r"^```text\n(.*?)^```", ARCHITECTURE.read_text(), re.MULTILINE | re.DOTALL)
    return [path for block in blocks for path in _tree_paths(block.splitlines())]


def _tree_paths(lines: Sequence[str]) -> Iterator[str]:
    folders: list[str] = []
    for line in lines:
        found = re.fullmatch(r"( *)(\w+(?: \w+)*|\w+/)(?:  .*)?", line)
        if not found:
            continue
        depth, names = len(found[1]) // 2, found[2]
        del folders[depth:]
        if names.endswith("/"):
            folders.append(names)
        elif folders and folders[0].rstrip("/") in ROOMS:
            yield from ("".join(folders) + name for name in names.split())


def test_every_module_is_in_the_architecture() -> None:
    described = described_modules()
    modules_of_rooms = {
        str(module.path.relative_to(PACKAGE).with_suffix(""))
        for module in TREE
        if module.path.name != "__init__.py" and module.path.parent != PACKAGE
    }
    missing = [f"{path} is not described" for path in modules_of_rooms - set(described)]
    stale = [f"{path} does not exist" for path in described if path not in modules_of_rooms]
    twice = [f"{path} is described twice" for path, count in Counter(described).items() if count > 1]
    assert sorted([*missing, *stale, *twice]) == [], "correct the trees in docs/architecture.md"


def test_modules_beside_the_rooms_are_in_the_architecture() -> None:
    text = ARCHITECTURE.read_text()
    assert [
        path.name for path in PACKAGE.glob("*.py") if path.stem != "__init__" and f"`{path.name}`" not in text
    ] == []


def test_the_tree_of_a_document_is_read() -> None:
    tree = ["archive/", "  names      safe names", "  stores/", "    s3 gcs   two", "Other text"]
    assert list(_tree_paths(tree)) == ["archive/names", "archive/stores/s3", "archive/stores/gcs"]
