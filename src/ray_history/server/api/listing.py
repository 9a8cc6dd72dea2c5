"""The state API's listings: `/api/v0/{tasks, actors, nodes, jobs, workers, …}`.

Rows are selected, counted and written as JSON by SQL. Filters apply before limits. Beyond Ray, listings take any
`limit`, `offset` and `cursor`, `sort` by a column, `order`, and `exclude_internal`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import NamedTuple, TypeAlias

import msgspec
from starlette.responses import Response

from ray_history.history.engine import OUT_OF_MEMORY
from ray_history.history.read.json_rows import may_hold_secret, row
from ray_history.history.registry import TABLES, Table, minor_version
from ray_history.server.api import cursor
from ray_history.server.api.filters import (
    EXCLUDE_DRIVER,
    EXCLUDE_INTERNAL,
    FILTERS,
    conditions,
    counts_only_matches,
    is_exact,
    parse_filters,
    source_conditions,
    without_internal,
)
from ray_history.server.completeness import warnings
from ray_history.server.http.budget import OverBudget, budget
from ray_history.server.http.query_params import Filter, boolean, integer, one_of
from ray_history.server.http.responses import ApiError, Streamed, growing_json, listed_json
from ray_history.server.logs.task_output import IS_UNREPORTED, has_unreported, with_outputs
from ray_history.server.redaction.rules import redacted
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.open_session import DETAIL_STREAM_BYTES, STREAM_BYTES
from ray_history.server.sessions.routes import (
    FLAG,
    NUMBER,
    TEXT,
    TIMEOUT,
    VIEW,
    Parameter,
    SessionRoute,
    component,
    json_of,
    one_of_texts,
)

PLAN_BOUND_ROWS = 100
"""Up to this many rows, planning a query takes longer than running it."""
RAY_SOURCE_MAX = 10_000
"""Rows that Ray's sources send at most. It lists fewer in the order of their keys, and any of more."""
SORT_WHOLE_MAX = 1_000
"""Up to this many tasks are sorted whole; of more only the keys, since a million whole tasks do not fit into memory."""
BUFFERED_MAX = 20_000
"""Up to this many rows are made at full speed for slow clients too, which then hold text and not a running query."""
FIRST_CHUNK = 1024
"""Rows that are made before the first are sent."""
CHUNK = 256
"""Rows per chunk of longer answers: text that fits into a processor's cache is passed on faster."""
_RESERVED = 64 << 10
"""Bytes of the largest answer for what is not rows."""
SMALL_PAGE = 256
"""Rows of the first page after a lack of memory; each failure halves it."""
COUNTS_MAX = 1000
"""Counts that an open session caches."""


Row: TypeAlias = tuple[bytes, bool, bool]
"""The text of a row, whether to search it for secrets, and whether the logs may have what it lacks."""
Rows: TypeAlias = list[Row]


class Counts(NamedTuple):
    """Rows before and after the filters that Ray does not apply at the source."""

    total: int
    filtered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingRequest:
    """The parameters of a listing, checked."""

    table: Table
    limit: int
    offset: int
    page: cursor.Page | None
    detail: bool
    filters: tuple[Filter, ...]
    exclude_driver: bool
    sort: str
    order: str
    """Empty for the default, ascending except where a table has its own default order."""

    @classmethod
    def parse(cls, request: SessionRequest, table: Table) -> ListingRequest:
        query = request.query
        integer(query, "timeout", 30, minimum=0)  # nothing here takes that long
        page = cursor.requested_page(request)
        sort = query.get("sort", "")
        if sort and sort not in table.sortable:
            raise ApiError(400, f"invalid sort {sort[:40]!r}: expected one of {', '.join(sorted(table.sortable))}")
        return cls(
            table=table,
            limit=min(integer(query, "limit", 100, minimum=0), budget().rows),
            offset=page.offset if page else integer(query, "offset", 0, minimum=0),
            page=page,
            detail=boolean(query, "detail", default=False),
            filters=parse_filters(query),
            exclude_driver=table.name == "tasks" and boolean(query, "exclude_driver", default=True),
            sort=sort,
            order=one_of(query, "order", ("asc", "desc"), "asc") if query.get("order") else "",
        )

    @property
    def is_one_task(self) -> bool:
        """Whether the only filter is a task's own id."""
        if self.table.name != "tasks" or len(self.filters) != 1:
            return False
        (only,) = self.filters
        return (only.key, only.predicate) == ("task_id", "=") and is_exact(only.key, only.value)

    @property
    def sorts_keys_first(self) -> bool:
        return bool(self.sort) and self.table.name == "tasks" and self.limit > SORT_WHOLE_MAX

    def order_by(self, *, by_key: bool) -> str:
        """SQL: the order of the rows: by `sort`, by key, or undefined."""
        table = self.table
        if self.sort:
            order = self.order or "asc"
            return f" order by {table.sortable[self.sort]} {order} nulls last, {table.key}{table.tie_breakers}"
        # Ray does not define which of very many rows a truncated listing holds. Sorting a million rows for it would be
        # waste, and sorting a streamed listing would hold all of its rows, which do not fit into memory.
        if not by_key:
            return ""
        first = table.default_order if table.default_order and not self.order else f"{table.key} {self.order or 'asc'}"
        return f" order by {first}{table.tie_breakers}"


class ListingQuery:
    """The SQL of a listing."""

    def __init__(self, request: SessionRequest, listing: ListingRequest) -> None:
        self.request, self.listing = request, listing
        self.where, self.values = conditions(listing.table, listing.filters)

    def visible(self, rows: str) -> str:
        """SQL: the rows without the excluded ones."""
        users = without_internal(self.request, self.listing.table.name, rows)
        return f"(from {users} where not is_driver)" if self.listing.exclude_driver else users

    @cached_property
    def rows(self) -> str:
        """SQL: the rows of the table, or some of them with all that can match."""
        tables, view, table = self.request.tables, self.request.view, self.listing.table.name
        if table == "tasks":
            for condition in self.listing.filters:
                if condition.key == "task_id" and condition.predicate == "=":
                    return self.visible(tables.task(condition.value, view))
        return self.visible(tables.source(table, view))

    def counts(self) -> Counts:
        table, filters, cache = self.listing.table, self.listing.filters, self.request.open.counts
        key = (self.rows, filters)
        if cached := cache.get(key):
            return Counts(*cached)
        total = self._count(*source_conditions(table, filters))
        filtered = total if counts_only_matches(table, filters) else self._count(self.where, self.values)
        if len(cache) < COUNTS_MAX:
            cache[key] = total, filtered
        return Counts(total, filtered)

    def _count(self, where: str, values: list[object]) -> int:
        # With the conditions in `where`, Parquet's statistics skip most of the work.
        ((count,),) = self.request.tables.rows(f"select count(*) from {self.rows} where {where or 'true'}", values)
        return int(count)

    def texts(self, selection: str, *, few: bool, suspect: str = "") -> str:
        """SQL: the JSON text of each selected row, whether to search it for secrets, and whether the logs may have what
        it lacks."""
        request, table, detail = self.request, self.listing.table.name, self.listing.detail
        # Texts that many tasks share are redacted, or found to be clean, only once.
        has_shared_parts = table == "tasks" and detail and request.redact and not few
        environments = request.tables.environments() if has_shared_parts else ()
        version = minor_version(request.open.facts.ray_version)
        text = row(table, detail=detail, redact=request.redact, few=few, environments=environments, version=version)
        if not request.redact:
            suspect = "false"
        elif not suspect:
            clean = has_shared_parts and request.tables.are_clean()
            suspect = may_hold_secret(table, detail=detail, clean=clean)
        is_unreported = IS_UNREPORTED if self.fills_outputs else "false"
        return f"select encode({text}), {suspect}, {is_unreported} from ({selection})"

    @cached_property
    def fills_outputs(self) -> bool:
        """Whether the place of some tasks' output has to be found in logs."""
        listing = self.listing
        return (
            listing.table.name == "tasks" and listing.detail and (listing.is_one_task or has_unreported(self.request))
        )

    def finished(self, rows: Sequence[Row]) -> list[bytes]:
        """The texts of rows, with what only the logs have, and without the secrets of suspect ones."""
        if self.fills_outputs:
            rows = with_outputs(self.request, rows)
        return [
            msgspec.json.encode(redacted(msgspec.json.decode(text))) if suspect else text for text, suspect, _ in rows
        ]

    def page(self, order: str, limit: int, offset: int) -> tuple[str, list[object]]:
        """SQL: the texts of a part of the rows, and its parameters."""
        selection = f"from {self.rows} where {self.where or 'true'}"
        part = f"{order} limit {limit} offset {offset}"
        if not self.listing.sorts_keys_first:
            # Select rows before making their texts: otherwise the texts of all rows are made and sorted.
            return self.texts(selection + part, few=limit <= PLAN_BOUND_ROWS), self.values
        keys = f"select task_id, attempt_number {selection}{part}"
        wide = f"select wide.* from ({selection}) as wide semi join ({keys}) as keys using (task_id, attempt_number)"
        return self.texts(wide + order, few=False), self.values * 2

    def first_tasks(self, order: str) -> str | None:
        """SQL: the texts of the first tasks, where no filter, order or offset asks for others. Only one thread reads
        them: with several, DuckDB also reads the groups of rows behind the limit, and makes their texts."""
        listing = self.listing
        if listing.table.name != "tasks" or listing.limit <= PLAN_BOUND_ROWS or self.where or order or listing.offset:
            return None
        rows = self.request.tables.first_tasks(listing.limit + listing.limit // 4, self.request.view)
        return f"{self.texts(f'from {self.visible(rows)}', few=False)} limit {listing.limit}" if rows else None

    def head(self, counts: Counts) -> bytes:
        """The JSON before the rows."""
        return (
            '{"result": true, "msg": "", "data": {"result": {'
            f'"total": {counts.total}, "num_after_truncation": {counts.total}, "num_filtered": {counts.filtered}, '
            '"result": ['
        ).encode()

    def tail(self, counts: Counts, rows: int | None = None, note: str = "") -> bytes:
        """The JSON after the rows; `rows` is their number if it is smaller than the limit, and `note` says why."""
        listing, table = self.listing, self.listing.table.name
        nothing = None if table == "runtime_envs" else ""  # as in Ray
        if not note and counts.filtered > listing.offset + listing.limit and listing.limit == budget().rows:
            note = budget().rows_message
        text = " ".join(filter(None, (note, warnings.warning(self.request, table))))
        warning = msgspec.json.encode(text or nothing).decode()
        next_cursor = ""
        if listing.page:
            token = listing.page.next_token(listing.limit if rows is None else rows, counts.filtered)
            next_cursor = f', "next_cursor": {msgspec.json.encode(token).decode()}'
        return f'], "partial_failure_warning": {warning}, "warnings": null{next_cursor}}}}}}}'.encode()


def list_rows(request: SessionRequest, table: str) -> Response:
    """The rows of the state API's listing."""
    query = ListingQuery(request, ListingRequest.parse(request, TABLES[table]))
    listing = query.listing
    if listing.is_one_task:
        return send_one_task(query)
    counts = query.counts()
    expected = min(listing.limit, max(counts.filtered - listing.offset, 0))
    by_key = counts.filtered <= min(listing.limit, BUFFERED_MAX) or counts.total <= RAY_SOURCE_MAX
    order = listing.order_by(by_key=by_key)
    if expected <= BUFFERED_MAX:
        return send_buffered(query, order, counts, expected)
    return send_streamed(query, order, counts)


def send_one_task(query: ListingQuery) -> Response:
    """The attempts of one task: a few rows, fetched together and counted as they come."""
    listing = query.listing
    matching = f"where {query.where}{listing.order_by(by_key=True)}"
    # Searching one text for secrets takes less time than planning when to.
    found = query.request.tables.fetch_task(
        listing.filters[0].value,
        query.request.view,
        lambda rows: query.texts(f"from {query.visible(rows)} {matching}", few=True, suspect="true"),
        query.values,
    )
    counts = Counts(len(found), len(found))
    texts = query.finished(found[listing.offset : listing.offset + listing.limit])
    return listed_json(query.head(counts), texts, query.tail(counts))


def send_buffered(query: ListingQuery, order: str, counts: Counts, expected: int) -> Response:
    """Rows that are made at full speed; sent with a length if the first chunk holds all of them."""
    head, tail = query.head(counts), query.tail(counts)
    chunks = _chunks(query, order, expected)
    first = next(chunks)
    if len(first) == expected:
        chunks.close()
        return listed_json(head, query.finished(first), tail)
    return growing_json(head, _finished(query, first, chunks), tail)


def _finished(query: ListingQuery, first: list[Row], chunks: Generator[list[Row]]) -> Generator[list[bytes]]:
    with closing(chunks):  # others wait for its turn
        for rows in chain([first], chunks):
            yield query.finished(rows)


def _chunks(query: ListingQuery, order: str, expected: int) -> Generator[Rows]:
    """At least one chunk, perhaps empty. If memory does not suffice for all rows at once, the rest is made in pages."""
    listing, made = query.listing, 0
    with query.request.tables.turn:  # one for all: who waited for a second one could hold up its owners
        try:
            for rows in _chunks_at_once(query, order, expected):
                made += len(rows)
                yield rows
        except OUT_OF_MEMORY:
            yield from _pages(query, order, listing.limit - made, listing.offset + made, SMALL_PAGE)


def _chunks_at_once(query: ListingQuery, order: str, expected: int) -> Generator[Rows]:
    tables, listing = query.request.tables, query.listing
    size = FIRST_CHUNK if expected <= FIRST_CHUNK else CHUNK
    made = 0
    if first_tasks := query.first_tasks(order):
        for rows in tables.some_rows(first_tasks, [], size):
            made += len(rows)
            yield rows
    if made < expected or not made:  # the first tasks were fewer than guessed
        yield from tables.some_rows(*query.page(order, listing.limit - made, listing.offset + made), size)


def _pages(query: ListingQuery, order: str, limit: int, offset: int, size: int) -> Generator[Rows]:
    """Pages of this many rows, or of ever fewer until they fit into memory. Raises if a single row does not. Callers
    have a turn."""
    tables, end = query.request.tables, offset + limit
    while offset < end:
        try:
            rows = tables.rows(*query.page(order, min(size, end - offset), offset))
        except OUT_OF_MEMORY:
            if size == 1:
                raise
            size //= 2
            continue
        yield rows
        if not rows:
            return
        offset += len(rows)


def send_streamed(query: ListingQuery, order: str, counts: Counts) -> Response:
    """Rows that are made as fast as the client reads them."""
    listing = query.listing
    if listing.sorts_keys_first:
        rows = max(min(listing.limit, counts.filtered - listing.offset), 0)
        pages = _in_turns(query, _pages(query, order, rows, listing.offset, BUFFERED_MAX))
    else:
        memory = DETAIL_STREAM_BYTES if listing.detail else STREAM_BYTES
        pages = query.request.open.stream(*query.page(order, listing.limit, listing.offset), memory)
    return Streamed(_joined(query, counts, pages))


def _in_turns(query: ListingQuery, pages: Iterator[Rows]) -> Iterator[Rows]:
    """Take a turn for each page: a client may read them slowly."""
    while True:
        with query.request.tables.turn:
            rows = next(pages, None)
        if rows is None:
            return
        yield rows


def _joined(query: ListingQuery, counts: Counts, pages: Iterable[list[Row]]) -> Generator[bytes]:
    """The whole answer, or its beginning with a note about the limit that it met."""
    limits, note = budget(), ""
    size, made, separator = 0, 0, b""
    yield query.head(counts)
    try:
        for rows in pages:
            piece = b", ".join(query.finished(rows))
            size += len(piece)
            if size > limits.size - _RESERVED:
                note = limits.size_message
                break
            yield separator + piece
            made += len(rows)
            separator = b", "
    except OverBudget as met:
        note = f"This answer ends early: {met}."
    yield query.tail(counts, made if note else None, note)


_PAGING = (
    Parameter("limit", NUMBER, "Maximum number of rows."),
    Parameter("offset", NUMBER, "Number of rows to skip."),
    Parameter("cursor", TEXT, "Page to send: empty for the first, then the `next_cursor` of the page before."),
    Parameter("detail", FLAG, "Include all columns."),
    Parameter("sort", TEXT, "Column to sort by."),
    Parameter("order", one_of_texts("asc", "desc"), "Sort order."),
    TIMEOUT,
)


def _route(table: Table) -> SessionRoute:
    exclusions = [EXCLUDE_DRIVER] if table.name == "tasks" else []
    exclusions += [EXCLUDE_INTERNAL] if table.has_internal_rows else []
    return SessionRoute(
        table.path,
        partial(list_rows, table=table.name),
        summary=f"{table.name.replace('_', ' ').capitalize()}, in the form of Ray's state API.",
        parameters=(*VIEW, *_PAGING, *exclusions, *FILTERS),
        content=json_of(component(f"list_of_{table.name}")),
        forwarded=True,
    )


routes = [_route(table) for table in TABLES.values()]
