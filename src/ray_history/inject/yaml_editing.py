"""Changes to a YAML document that preserve the position of its comments.

The parser attaches a comment to the value before it. Comments after the last line of a block usually belong to the
following block, so that additions at the end of a block are placed before them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, FoldedScalarString, LiteralScalarString
from ruamel.yaml.tokens import CommentToken

Block = CommentedMap | CommentedSeq

_INDENTED_LIST = re.compile(r"^( *)[^\s#-][^\n]*:[ \t]*\n(?:[ \t]*(?:#[^\n]*)?\n)*\1  - ", re.MULTILINE)


def make_parser(text: str) -> YAML:
    """A parser that keeps the list indentation of this text, its quotes and its long lines."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1 << 20
    if _INDENTED_LIST.search(text):
        yaml.indent(mapping=2, sequence=4, offset=2)
    return yaml


def dump(yaml: YAML, document: Any) -> str:
    text = io.StringIO()
    yaml.dump(document, text)
    return text.getvalue()


def quoted(text: str) -> str:
    """Text in quotes: Kubernetes reads YAML 1.1, where an unquoted `on` or `no` is a boolean."""
    in_quotes: str = DoubleQuotedScalarString(text)
    return in_quotes


def set_key(block: CommentedMap, key: str, value: Any) -> None:
    """Set the key, unless it already has this value."""
    if key in block and block[key] == value:
        return
    heading = _take_heading(block)
    block[key] = _parsed(value)
    _put_heading(block, heading)


def remove_key(block: CommentedMap, key: str) -> None:
    if key in block:
        heading = _take_heading(block)
        del block[key]
        _put_heading(block, heading)


@contextmanager
def list_to_extend(block: CommentedMap, key: str) -> Iterator[CommentedSeq]:
    """The list under this key, created if missing; entries can be appended inside the block."""
    extended = block[key] if block.get(key) else block
    heading = _take_heading(extended)
    if not block.get(key):
        block[key] = CommentedSeq()
    yield block[key]
    _put_heading(extended, heading)


def append(entries: CommentedSeq, value: Any) -> None:
    entries.append(_parsed(value))


def entry_named(entries: CommentedSeq, name: str) -> CommentedMap:
    """The entry with this name, appended if missing."""
    for entry in entries:
        if entry.get("name") == name:
            return entry  # type: ignore[no-any-return]
    append(entries, {"name": name})
    return entries[-1]  # type: ignore[no-any-return]


def _parsed(value: Any) -> Any:
    """The value as the parser would represent it."""
    if isinstance(value, dict):
        return CommentedMap({key: _parsed(inner) for key, inner in value.items()})
    if isinstance(value, list | tuple):
        return CommentedSeq([_parsed(inner) for inner in value])
    return value


def _last_leaf(block: Block) -> tuple[Block, Any, int] | None:
    """The innermost last block, the key of its last value, and the slot of comments after that value."""
    while block:
        key = next(reversed(block)) if isinstance(block, CommentedMap) else len(block) - 1
        value = block[key]
        if not isinstance(value, Block) or not value or value.fa.flow_style():
            return block, key, 2 if isinstance(block, CommentedMap) else 0
        block = value
    return None


def _take_heading(block: Block) -> str:
    """Remove and return the comment lines after the last line of the block; a comment on that line stays."""
    leaf = _last_leaf(block)
    if leaf is None:
        return ""
    owner, key, place = leaf
    comments = owner.ca.items.get(key)
    if not comments or comments[place] is None:
        return ""
    token = comments[place]
    if isinstance(owner[key], LiteralScalarString | FoldedScalarString):
        comments[place] = None
        return str(token.value)
    same_line, newline, heading = token.value.partition("\n")
    token.value = same_line + newline
    return str(heading)


def _put_heading(block: Block, heading: str) -> None:
    leaf = _last_leaf(block)
    if not heading or leaf is None:
        return
    owner, key, place = leaf
    comments = owner.ca.items.setdefault(key, [None] * 4)
    if comments[place] is None:
        comments[place] = CommentToken("\n", CommentMark(0), None)
    comments[place].value += heading
