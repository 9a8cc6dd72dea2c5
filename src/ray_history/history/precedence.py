"""From which source each column of a table is taken: declared once, in the registry, and used by the table's query.

A query has one common table expression, or alias, per source, with columns of the same names, and does not say itself
which of them wins. These words in it are replaced by SQL:

* `first_of(column)`: its value from the first source that has one;
* `every_column()`: all declared columns with their names, each as `first_of`;
* `columns_of(source)`: the names of the columns whose value comes from a source; null if there are none;
* `without_columns_of(source)`: all columns that can come from a source, null where they did, by `<source>_columns`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

_WORD = re.compile(r"\b(first_of|every_column|columns_of|without_columns_of)\((\w*)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Precedence:
    """The order of the sources of each column."""

    sources: Mapping[str, str]
    """The sources, by their names in the query, and what they are."""
    columns: Mapping[str, str]
    """Columns, by the names of their sources in order."""
    together: Mapping[str, str] = field(default_factory=dict)
    """Columns that belong together, by one that every source with any of them has: all come from the first source that
    has this one, never some from another."""

    final: Mapping[str, str] = field(default_factory=dict)
    """SQL of the value of a column that wins whichever source has it: nothing follows an end."""

    longest: Collection[str] = ()
    """Columns that are lists, of two sources: the longer one wins, and the first of equally long ones."""

    def order(self, column: str) -> tuple[str, ...]:
        """The sources of a column, the first one first."""
        (sources,) = (sources for sources, columns in self.columns.items() if column in columns.split())
        return tuple(sources.split())

    @property
    def names(self) -> tuple[str, ...]:
        """All columns."""
        return tuple(column for columns in self.columns.values() for column in columns.split())

    def leader(self, column: str) -> str:
        """The column whose source it comes from; itself if it belongs to none."""
        return next((leader for leader, columns in self.together.items() if column in columns.split()), column)

    def expanded(self, text: str) -> str:
        """A query with the words above replaced."""
        return _WORD.sub(lambda word: self._sql(word[1], word[2]), text)

    def _sql(self, word: str, name: str) -> str:
        match word:
            case "first_of":
                return self._first_of(name)
            case "every_column":
                return ", ".join(f"{self._first_of(column)} as {column}" for column in self.names)
            case "columns_of":
                found = ", ".join(f"case when {self._is_from(name, each)} then '{each}' end" for each in self._of(name))
                return f"nullif(list_filter([{found}], lambda name: name is not null), [])"
        return ", ".join(
            f"case when list_contains({name}_columns, '{column}') then null else {column} end as {column}"
            for column in self._of(name)
        )

    def _of(self, source: str) -> list[str]:
        return [column for column in self.names if source in self.order(column)]

    def _first_of(self, column: str) -> str:
        order, leader = self.order(column), self.leader(column)
        if column in self.longest:
            first, second = order
            return f"case when {self._is_from(second, column)} then {second}.{column} else {first}.{column} end"
        if len(order) == 1:
            return f"{order[0]}.{column}"
        if column in self.final:
            known = ", ".join(f"{source}.{column}" for source in order)
            return f"case when {self.final[column]} in ({known}) then {self.final[column]} else coalesce({known}) end"
        if leader == column:
            return f"coalesce({', '.join(f'{source}.{column}' for source in order)})"
        cases = " ".join(f"when {source}.{leader} is not null then {source}.{column}" for source in order)
        return f"case {cases} end"

    def _is_from(self, source: str, column: str) -> str:
        order, leader = self.order(column), self.leader(column)
        if column in self.longest:
            first, second = (f"coalesce(len({each}.{column}), 0)" for each in order)
            return f"{first} >= {second}" if source == order[0] else f"{second} > {first}"
        earlier = [f"{each}.{leader} is null" for each in order[: order.index(source)]]
        return " and ".join([*earlier, f"{source}.{column} is not null"])
