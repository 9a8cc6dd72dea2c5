"""A redacted table, as SQL.

The answers of the API are redacted row by row. In a table of millions of rows each distinct text that may contain a
secret is checked once, however many rows contain it, and replaced if it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from ray_history.history.read.tables import Tables
from ray_history.history.secrets import has_hint, may_contain_secret
from ray_history.history.sql import text
from ray_history.server.redaction.rules import HIDDEN, redacted

_MAX_TEXTS = 16 << 20
"""Bytes of distinct texts that are held in memory for one column."""


@dataclass(frozen=True, slots=True)
class _Column:
    table: str
    name: str
    kind: str

    @property
    def words(self) -> str:
        """SQL: its value as text."""
        return f"original.{self.name}" if self.kind == "VARCHAR" else f"to_json(original.{self.name})::varchar"

    @property
    def is_suspect(self) -> str:
        """SQL: whether a value must be checked. Only the table of tasks is large enough to need a filter."""
        if self.table != "tasks":
            return f"original.{self.name} is not null"
        return has_hint(self.words) if self.name == "runtime_env" else may_contain_secret(self.words)

    @property
    def has_texts(self) -> bool:
        return self.kind == "JSON" or ("VARCHAR" in self.kind and not self.name.endswith("_id"))

    def value(self, words: str) -> str:
        """SQL: its value, of such a text."""
        return words if self.kind == "VARCHAR" else f"{words}::json::{self.kind}"

    @property
    def hidden(self) -> str:
        """SQL: the replacement for a whole value."""
        return text(HIDDEN) if self.kind == "VARCHAR" else "null"

    def redacted(self, words: str) -> str:
        """The redacted text of a value."""
        if self.kind == "VARCHAR":
            return str(redacted({self.name: words})[self.name])
        return msgspec.json.encode(redacted({self.name: msgspec.json.decode(words)})[self.name]).decode()


def without_secrets(tables: Tables, table: str) -> str:
    """SQL: the rows of a table without secrets.

    If a column has too many texts to hold, the remaining ones that may contain secrets are redacted completely.
    """
    rows = tables.source(table)
    columns = [_Column(table, name, kind) for name, kind, *_ in tables.rows(f"describe from {rows}")]
    values, joins = [], []
    for column in columns:
        if not column.has_texts:
            continue
        suspects = tables.stream(f"select {column.words} from {rows} as original where {column.is_suspect}")
        texts, is_all = _redacted_texts(column, (words for page in suspects for (words,) in page))
        if is_all and all(before == after for before, after in texts.items()):
            continue
        hidden = f"hidden_{column.name}"
        values.append(f"""
            case
                when {hidden}.original is not null then {column.value(f"{hidden}.redacted")}
                when {"false" if is_all else column.is_suspect} then {column.hidden}
                else original.{column.name}
            end as {column.name}""")
        joins.append(f"left join {_rows(texts)} as {hidden} on {hidden}.original = {column.words}")
    if not values:
        return f"from {rows}"
    return f"select original.* replace ({', '.join(values)}) from {rows} as original {' '.join(joins)}"


def _redacted_texts(column: _Column, suspects: Iterable[str]) -> tuple[dict[str, str], bool]:
    """The redacted form of each text, and whether all texts are included."""
    texts: dict[str, str] = {}
    size = 0
    for words in suspects:
        if words in texts:
            continue
        if size > _MAX_TEXTS:
            return texts, False
        texts[words] = column.redacted(words)
        size += len(words) + len(texts[words])
    return texts, True


def _rows(texts: dict[str, str]) -> str:
    """SQL: the texts as a table."""
    pairs = text(msgspec.json.encode(list(texts.items())).decode())
    return f"(select pair[1] as original, pair[2] as redacted from (select unnest({pairs}::json::varchar[][]) as pair))"
