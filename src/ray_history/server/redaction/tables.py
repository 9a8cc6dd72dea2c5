"""A whole table without its secrets, as SQL.

What the API shows is looked through row by row. A table of millions of rows is looked through text by text: each one
that may tell a secret once, however many rows tell it. Those that do are replaced where they stand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from ray_history.history.read.tables import Tables
from ray_history.history.secrets import has_hint, may_contain_secret
from ray_history.history.sql import text
from ray_history.server.redaction.rules import HIDDEN, redacted

_MOST = 16 << 20
"""Bytes of texts that are held for one column."""


@dataclass(frozen=True, slots=True)
class _Column:
    table: str
    name: str
    kind: str

    @property
    def words(self) -> str:
        """SQL: its value as text."""
        return f"told.{self.name}" if self.kind == "VARCHAR" else f"to_json(told.{self.name})::varchar"

    @property
    def is_suspect(self) -> str:
        """SQL: whether looking through a value is worth it. Only tasks are many."""
        if self.table != "tasks":
            return f"told.{self.name} is not null"
        return has_hint(self.words) if self.name == "runtime_env" else may_contain_secret(self.words)

    @property
    def has_texts(self) -> bool:
        return self.kind == "JSON" or ("VARCHAR" in self.kind and not self.name.endswith("_id"))

    def value(self, words: str) -> str:
        """SQL: its value, of such a text."""
        return words if self.kind == "VARCHAR" else f"{words}::json::{self.kind}"

    @property
    def hidden(self) -> str:
        """SQL: what is shown if nothing of a value may be."""
        return text(HIDDEN) if self.kind == "VARCHAR" else "null"

    def shown(self, words: str) -> str:
        """The text that may be shown for one."""
        if self.kind == "VARCHAR":
            return str(redacted({self.name: words})[self.name])
        return msgspec.json.encode(redacted({self.name: msgspec.json.decode(words)})[self.name]).decode()


def without_secrets(tables: Tables, table: str) -> str:
    """SQL: the rows of a table. Where more texts would have to be held than may be, all others that are suspected are
    hidden whole."""
    rows = tables.source(table)
    columns = [_Column(table, name, kind) for name, kind, *_ in tables.rows(f"describe from {rows}")]
    values, joins = [], []
    for column in columns:
        if not column.has_texts:
            continue
        suspects = tables.stream(f"select {column.words} from {rows} as told where {column.is_suspect}")
        texts, is_all = _looked_through(column, (words for some in suspects for (words,) in some))
        if is_all and all(told == shown for told, shown in texts.items()):
            continue
        hidden = f"hidden_{column.name}"
        values.append(f"""
            case
                when {hidden}.told is not null then {column.value(f"{hidden}.shown")}
                when {"false" if is_all else column.is_suspect} then {column.hidden}
                else told.{column.name}
            end as {column.name}""")
        joins.append(f"left join {_rows(texts)} as {hidden} on {hidden}.told = {column.words}")
    if not values:
        return f"from {rows}"
    return f"select told.* replace ({', '.join(values)}) from {rows} as told {' '.join(joins)}"


def _looked_through(column: _Column, suspects: Iterable[str]) -> tuple[dict[str, str], bool]:
    """What is shown for each text, and whether that is all of them."""
    texts: dict[str, str] = {}
    size = 0
    for told in suspects:
        if told in texts:
            continue
        if size > _MOST:
            return texts, False
        texts[told] = column.shown(told)
        size += len(told) + len(texts[told])
    return texts, True


def _rows(texts: dict[str, str]) -> str:
    """SQL: them as a table."""
    told = text(msgspec.json.encode(list(texts.items())).decode())
    return f"(select pair[1] as told, pair[2] as shown from (select unnest({told}::json::varchar[][]) as pair))"
