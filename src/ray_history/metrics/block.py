"""A block: the samples of one Prometheus endpoint of a node over some minutes, as a collector stores them.

Invariants:
* A block can be read without any other: one that is lost or damaged costs its own samples.
* Times increase, within a block and from block to block of an endpoint.
* A series has one value for each time, the stale marker where the scrape did not show it.
* A scrape that failed is a time at which all series are stale, and `up` is 0.

Format, integers little-endian:

    4  magic and version        b"RHM1"
    4  length of the head
    n  head                     zstd, JSON: {"target", "timestamps": [ms, ...], "series": [text, ...], "kinds": "01…"}
       values                   zstd, float64: one value of each constant series (kind 0), in order, then all values of
                                each varying series (kind 1), one series after the other

Both zstd frames have checksums. Series are texts as the endpoint wrote them: `name{label="value",...}`.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec

from ray_history.decoding import DECODING_ERRORS
from ray_history.zstandard import Unpackable, unpacked, zstd

from .exposition import samples

STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
"""Prometheus' stale marker: the NaN that ends a series. A NaN that a program reports has other bits."""
STALE_BYTES = struct.pack("<d", STALE)
UP = "up"
"""Whether a scrape succeeded, as Prometheus names it."""

MAX_SERIES = 100_000
"""Of a block: a collector stores no more, and a reader refuses more."""
MAX_KEY = 16 << 10
MAX_SCRAPES = 3_600
MAX_SAMPLES = 8 << 20
_MAX_HEAD = 64 << 20
_MAGIC = b"RHM1"
_PREAMBLE = struct.Struct("<4sI")
_WRITTEN: dict[int, int] = {zstd.CompressionParameter.compression_level: 3, zstd.CompressionParameter.checksum_flag: 1}
_EARLIEST, _LATEST = 946_684_800_000, 4_102_444_800_000  # the years 2000 to 2100, in ms
_CONSTANT, _VARYING = "0", "1"

_Time = Annotated[int, msgspec.Meta(ge=_EARLIEST, lt=_LATEST)]
_Key = Annotated[str, msgspec.Meta(max_length=MAX_KEY)]


class CorruptBlock(ValueError):
    """The bytes are not a block, or a damaged one."""


class Head(msgspec.Struct, omit_defaults=True):
    """The head of a block."""

    target: Annotated[str, msgspec.Meta(max_length=300)]
    """`address:port`, which becomes the label `instance`."""
    timestamps: Annotated[list[_Time], msgspec.Meta(min_length=1, max_length=MAX_SCRAPES)]
    series: Annotated[list[_Key], msgspec.Meta(max_length=MAX_SERIES)]
    kinds: str
    left_out: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Series that were not stored because the endpoint showed too many."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block that was read."""

    target: str
    timestamps: list[int]
    left_out: int
    series: list[str]
    kinds: str
    packed: array[float]

    def columns(self) -> Iterator[array[float]]:
        """The values of each series, one for each time."""
        count = len(self.timestamps)
        constant, varying = 0, self.kinds.count(_CONSTANT)
        for kind in self.kinds:
            if kind == _CONSTANT:
                yield self.packed[constant : constant + 1] * count
                constant += 1
            else:
                yield self.packed[varying : varying + count]
                varying += count


class BlockRow(msgspec.Struct, frozen=True):
    """A row of `metric_blocks`."""

    key: str
    etag: str
    node_id: str
    endpoint: str
    """What the endpoint of the node belongs to: `agent`, `autoscaler` or `dashboard`."""
    first_ms: int
    last_ms: int | None = None
    """None if the block cannot be read."""
    target: str | None = None
    left_out: int = 0
    """Series for which the collector had no room."""


class OpenBlock:
    """Collects scrapes of one endpoint."""

    def __init__(
        self, target: str, *, keeps: Callable[[str], bool] = lambda _name: True, max_series: int = MAX_SERIES
    ) -> None:
        """`keeps` decides by the name of a metric whether its samples are stored."""
        self.target = target
        self._keeps = keeps
        self._max_series = max_series
        self._timestamps = array("q")
        self._columns: dict[str, array[float]] = {UP: array("d")}
        self._ignored = set[str]()
        """Names of metrics that are not stored."""
        self.left_out = 0
        """The largest number of samples of one scrape for which there was no room."""

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def first(self) -> int:
        """The time of the first scrape; there must be one."""
        return self._timestamps[0]

    @property
    def last(self) -> int:
        return self._timestamps[-1]

    @property
    def series_count(self) -> int:
        return len(self._columns)

    def add(self, time: int, lines: Iterable[str], *, left_out: int = 0) -> None:
        """Add a scrape at `time`, in ms, of which samples were left out. If `lines` raises, nothing of it is kept."""
        count, known = len(self._timestamps), len(self._columns)
        try:
            for key, value in samples(lines):
                column = self._columns.get(key)
                if column is None:
                    column = self._new_column(key)
                    if column is None:
                        left_out += self._is_stored(key)
                        continue
                if len(column) <= count:  # a series that is shown twice has its first value
                    _fill(column, count)
                    column.append(float(value))
        except BaseException:
            self._forget_from(count, known)
            raise
        self._end_scrape(time, 1.0)
        self.left_out = max(self.left_out, left_out)

    def add_failure(self, time: int) -> None:
        """Add a scrape that failed."""
        self._end_scrape(time, 0.0)

    def _end_scrape(self, time: int, is_up: float) -> None:
        up = self._columns[UP]
        del up[len(self._timestamps) :]
        up.append(is_up)
        self._timestamps.append(time)

    def _is_stored(self, key: str) -> bool:
        return key.partition("{")[0] not in self._ignored

    def _new_column(self, key: str) -> array[float] | None:
        name = key.partition("{")[0]
        if name in self._ignored or len(self._columns) >= self._max_series or len(key) > MAX_KEY:
            return None
        if not self._keeps(name):
            self._ignored.add(name)
            return None
        return self._columns.setdefault(key, array("d"))

    def _forget_from(self, count: int, known: int) -> None:
        """Forget the values from the `count`-th time on, and all but the first `known` series."""
        for key in list(self._columns)[known:]:
            del self._columns[key]
        for column in self._columns.values():
            del column[count:]

    def encode(self) -> bytes:
        """The block with all scrapes so far."""
        count = len(self._timestamps)
        constant, varying, kinds = bytearray(), bytearray(), []
        for column in self._columns.values():
            _fill(column, count)
            values = _little_endian(column)
            if values == values[:8] * count:
                constant += values[:8]
                kinds.append(_CONSTANT)
            else:
                varying += values
                kinds.append(_VARYING)
        head = Head(self.target, self._timestamps.tolist(), list(self._columns), "".join(kinds), self.left_out)
        packed = zstd.compress(msgspec.json.encode(head), options=_WRITTEN)
        return _PREAMBLE.pack(_MAGIC, len(packed)) + packed + zstd.compress(constant + varying, options=_WRITTEN)


def _fill(column: array[float], count: int) -> None:
    """Fill the times at which the series was not shown."""
    missing = count - len(column)
    if missing > 0:
        column.frombytes(_native(STALE_BYTES * missing))


def _little_endian(column: array[float]) -> bytes:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _native(data: bytes) -> bytes:
    if sys.byteorder == "little":
        return data
    swapped = array("d", data)
    swapped.byteswap()
    return swapped.tobytes()


def read_block(data: bytes) -> Block:
    """Read a block; raises `CorruptBlock` if it is damaged."""
    head, position = _read_head(data)
    count, constants = len(head.timestamps), head.kinds.count(_CONSTANT)
    cells = constants + (len(head.series) - constants) * count
    if len(head.series) * count > MAX_SAMPLES:
        raise CorruptBlock(f"it claims {len(head.series)} series at {count} times")
    values = array("d", _native(_unpacked(data[position:], cells * 8, "values")))
    if len(values) != cells:
        raise CorruptBlock(f"it has {len(values)} values instead of {cells}")
    return Block(head.target, head.timestamps, head.left_out, head.series, head.kinds, values)


def _read_head(data: bytes) -> tuple[Head, int]:
    if len(data) < _PREAMBLE.size or not data.startswith(_MAGIC):
        raise CorruptBlock("it is not a block of metrics")
    end = _PREAMBLE.size + _PREAMBLE.unpack_from(data)[1]
    if end > len(data):
        raise CorruptBlock(f"its head ends after {len(data)} of {end} bytes")
    try:
        head = msgspec.json.decode(_unpacked(data[_PREAMBLE.size : end], _MAX_HEAD, "head"), type=Head)
    except DECODING_ERRORS as error:
        raise CorruptBlock(f"its head cannot be decoded: {error}") from error
    if len(head.kinds) != len(head.series) or head.kinds.strip(_CONSTANT + _VARYING):
        raise CorruptBlock(f"it has {len(head.kinds)} kinds of {len(head.series)} series")
    if any(later <= earlier for earlier, later in zip(head.timestamps, head.timestamps[1:], strict=False)):
        raise CorruptBlock("its times do not increase")
    return head, end


def _unpacked(frame: bytes, limit: int, what: str) -> bytes:
    try:
        return unpacked(frame, limit)
    except Unpackable as error:
        raise CorruptBlock(f"its {what} {error}") from error
