"""Event files as bytes: every event a file still holds comes out, everything it lost is named.

Invariants:
* the content decides the format, never the name: gzip or plain, then JSON lines or JSON arrays;
* an event comes out exactly as stored, without the white space around it, in the file's order, and is always one
  valid JSON object in UTF-8; anything else becomes a `Problem` with its position, never an exception, never silence;
* a broken line costs only itself. A broken array element costs the elements up to the next place that certainly
  begins an event (see `_resynchronise`);
* only the source of the chunks raises: a store that fails is not a file that ends early;
* how the body was cut into chunks never changes the result;
* memory stays within a few blocks and a few times the longest event, whatever the file unpacks to.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import msgspec
from isal import igzip_lib, isal_zlib

Kind = Literal[
    "gzip",  # the compressed data are damaged, fail their checksum or are followed by something else
    "truncated",  # the file, or what was compressed, ends in the middle
    "broken",  # not JSON; in an array also a missing comma
    "garbage",  # something that is no array follows an array
    "too long",  # a line or element over `Limits.max_event`
    "not an object",  # JSON, but a number, a string or a list
    "not utf-8",  # JSON but for its encoding
    "too large",  # the text is longer than `Limits.max_bytes`; the rest was not read
    "too broken",  # over `Limits.max_faults` or `Limits.max_rescues`; the rest was not read
    "more",  # problems beyond `Limits.max_problems`, counted in one
]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a file that is no event, and where."""

    file: str
    kind: Kind
    offset: int  # byte position in the decompressed text
    line: int | None  # from 1; None where there are no lines: in arrays, and for the compressed data as a whole
    detail: str

    def __str__(self) -> str:
        place = f"byte {self.offset}" if self.line is None else f"line {self.line} (byte {self.offset})"
        return f"{self.file}: {place}: {self.kind}: {self.detail}"


@dataclass(frozen=True, slots=True)
class Limits:
    max_event: int = 100 * 1024 * 1024
    """Longest line or array element: what the Go server accepts as a line."""
    max_bytes: int = 16 * 1024**3
    """Longest decompressed text: stops a decompression bomb; no collector lets a file grow near it."""
    block: int = 1024 * 1024
    """Text handled at a time, by measurement: arrays at 460 MB/s with 256 KiB, 750 with 1 MiB, 520 with 4 MiB."""
    max_problems: int = 100
    """Problems kept per file: enough to see what happened, little for a file that is no event file at all."""
    max_faults: int = 100_000
    """Problems after which a file is given up: they take about a second, and no event file has as many."""
    max_rescues: int = 100
    """Damaged places passed per file of arrays: each costs some milliseconds, and no real damage has as many."""


DEFAULT = Limits()


def read_events(
    chunks: Iterable[bytes], *, file: str, problems: list[Problem], limits: Limits = DEFAULT
) -> Iterator[bytes]:
    """Each event of the file with the body `chunks`; what is wrong with it is added to `problems` while reading."""
    return chain.from_iterable(read_event_blocks(chunks, file=file, problems=problems, limits=limits))


def read_event_blocks(
    chunks: Iterable[bytes], *, file: str, problems: list[Problem], limits: Limits = DEFAULT
) -> Iterator[list[bytes]]:
    """The same events in lists of up to about one block, never empty: less work per event for who reads many."""
    report = _Report(file, problems, limits)
    text = _Window(_text(_Window(chunks), report, limits))
    if text.fill(3) and text.held.startswith(codecs.BOM_UTF8):
        text.at = 3
    blank_lines = text.skip(_SPACE)
    if text.peek() == _OPEN:
        blocks = _array_events(text, report, limits)
    else:
        blocks = _line_events(text, blank_lines, report, limits)
    yield from filter(None, blocks)


def encode_events(events: Iterable[bytes], *, compress: bool = True) -> bytes:
    """The body of a file of JSON lines, as layout generation C has it; equal events give equal bytes."""
    return b"".join(encode_event_chunks(events, compress=compress))


def encode_event_chunks(events: Iterable[bytes], *, compress: bool = True) -> Iterator[bytes]:
    """The same body piece by piece, for `Store.put_stream`: only about a block is held."""
    # zlib writes no time into the gzip header and the same bytes on every CPU; isal may not, and packs 30 % worse.
    packer = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16) if compress else None
    lines = bytearray()
    for event in events:
        lines += event.replace(b"\n", b" ")  # in valid JSON a bare line feed is only ever space between tokens
        lines += b"\n"
        if len(lines) >= DEFAULT.block:
            yield packer.compress(lines) if packer else bytes(lines)
            lines.clear()
    yield packer.compress(lines) + packer.flush() if packer else bytes(lines)


class _Report:
    """The problems of one file: the first in full, the rest as a number."""

    def __init__(self, file: str, problems: list[Problem], limits: Limits) -> None:
        self._file, self._problems, self._limits, self._count = file, problems, limits, 0
        self.given_up = False

    def add(self, kind: Kind, offset: int, detail: str, line: int | None = None) -> None:
        self._count += 1
        more = self._count - self._limits.max_problems
        if more > 1:
            self._problems.pop()
        if more > 0:
            kind, detail = "more", f"{more} more problems, the last: {kind}: {detail}"
        self._problems.append(Problem(self._file, kind, offset, line, detail))
        if self._count == self._limits.max_faults:
            self.give_up(offset)

    def give_up(self, offset: int) -> None:
        self.given_up = True
        self.add("too broken", offset, "too much damage; the rest of the file was not read")


class _Window:
    """The part of a stream of bytes that is being read: chunks come in when needed, what was read is let go."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks, self._gone = iter(chunks), 0
        self.held, self.at, self.ended = b"", 0, False

    @property
    def offset(self) -> int:
        return self._gone + self.at

    @property
    def left(self) -> int:
        return len(self.held) - self.at

    def fill(self, size: int) -> bool:
        """Hold `size` bytes from here on; False when the stream has fewer left."""
        if self.left >= size or self.ended:
            return self.left >= size
        parts, held = [self.held[self.at :]], self.left
        while held < size:
            chunk = next(self._chunks, None)
            if chunk is None:
                self.ended = True
                break
            parts.append(chunk)
            held += len(chunk)
        self._gone += self.at
        self.held, self.at = b"".join(parts), 0
        return held >= size

    def take(self, size: int) -> bytes:
        """The next `size` bytes, fewer only at the end."""
        self.fill(size)
        taken = self.held[self.at : self.at + size]
        self.at += len(taken)
        return taken

    def peek(self) -> int | None:
        return self.held[self.at] if self.fill(1) else None

    def give_back(self, data: bytes) -> None:
        """Undo a `take` in part; `data` may reach back to what was let go since."""
        if len(data) > self.at:
            self._gone -= len(data) - self.at
            self.held, self.at = data + self.held[self.at :], len(data)
        self.at -= len(data)

    def skip(self, these: bytes) -> int:
        """Go to the next byte that is none of `these`; returns the number of line ends passed."""
        lines = 0
        while self.peek() in frozenset(these):
            ahead = self.held[self.at : self.at + _PIECE]
            passed = len(ahead) - len(ahead.lstrip(these))
            lines += ahead.count(b"\n", 0, passed)
            self.at += passed
        return lines


# --- from the stored body to text ------------------------------------------------------------------------------------

_PIECE = 64 * 1024
"""Text passed on at a time: no call of the decompressor gives more, whatever a bomb holds."""
_STEP = 2 * 1024
"""Compressed bytes per call. A call that meets damage loses its output, so the text lost before a damaged place is
some 20 kB. isal's igzip unpacks Ray's events at 1.7 GB/s in such steps (2.1 in large ones), zlib at 0.9. Its isal_zlib
would be no choice: 1.8.0 forgets up to 6 bytes of `unused_data` when a member ends that near to the end of a step."""
_MAX_HEADER = 128 * 1024
"""A gzip header with the largest extra field (64 KiB) and generous names."""


def _text(body: _Window, report: _Report, limits: Limits) -> Iterator[bytes]:
    """The decompressed text in pieces, and no more of it than the limit."""
    body.fill(2)
    packed = body.held.startswith(b"\x1f\x8b")
    left = limits.max_bytes
    for piece in _gunzip(body, report) if packed else iter(lambda: body.take(_PIECE), b""):
        if len(piece) > left:
            report.add("too large", limits.max_bytes, f"more than {limits.max_bytes} bytes; the rest was not read")
            yield piece[:left]
            return
        left -= len(piece)
        yield piece


def _gunzip(body: _Window, report: _Report) -> Iterator[bytes]:
    """The text of all gzip members. Headers and checksums are read here because a decompressor that checks them itself
    throws away the text it is unhappy with."""
    total = members = 0
    while body.fill(1):
        body.fill(_MAX_HEADER)
        begin = _after_gzip_header(body.held, body.at)
        if begin is None:
            report.add("gzip", total, f"no gzip header after {members} compressed parts; the rest was not read")
            return
        body.at = begin
        inflate, checksum, size = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE), 0, 0
        while not inflate.eof:
            taken = body.take(_STEP) if inflate.needs_input else b""
            try:
                piece = inflate.decompress(taken, _PIECE)
            except igzip_lib.error as error:  # type: ignore[misc]  # isal's stub calls the class an instance
                report.add(
                    "gzip", total, f"damaged; the rest from {_STEP} compressed bytes before it is lost ({error})"
                )
                return
            if not taken and not piece and not inflate.eof:
                report.add("truncated", total, "the compressed data end in the middle")
                return
            checksum, size, total = isal_zlib.crc32(piece, checksum), size + len(piece), total + len(piece)
            yield piece
        body.give_back(inflate.unused_data)
        if not body.fill(8):
            report.add("truncated", total, "the checksum after the compressed data is cut")
            return
        if body.take(8) != checksum.to_bytes(4, "little") + (size % 2**32).to_bytes(4, "little"):
            report.add("gzip", total, f"wrong checksum: damage somewhere in the {size} bytes before")
        members += 1
        body.skip(b"\0")  # padding, which gzip allows


def _after_gzip_header(data: bytes, start: int) -> int | None:
    """Where the gzip header (RFC 1952) ends that begins at `start`; None when there is none, or not all of it."""
    end = start + 10
    if len(data) < end or not data.startswith(b"\x1f\x8b\x08", start):
        return None
    flags = data[start + 3]
    if flags & 4:  # extra field
        end += 2 + int.from_bytes(data[end : end + 2], "little")
    for named in (8, 16):  # file name, comment
        if flags & named:
            end = data.find(b"\0", end) + 1
            if end == 0:
                return None
    end += flags & 2  # checksum of the header, two bytes
    return end if end <= len(data) else None


# --- JSON lines ------------------------------------------------------------------------------------------------------

_SPACE = b" \t\r\n"
_OPEN, _CLOSE, _BRACE, _COMMA = b"[]{,"
_decode = msgspec.json.Decoder(msgspec.Raw).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _line_events(text: _Window, number: int, report: _Report, limits: Limits) -> Iterator[list[bytes]]:
    """The events of JSON lines, of which `number` are behind us."""
    while text.fill(1) and not report.given_up:
        text.fill(limits.block)
        end = text.held.rfind(b"\n", text.at)
        if end < 0 and text.left > limits.max_event:
            number += 1
            report.add("too long", text.offset, f"more than {limits.max_event} bytes; skipped", number)
            _skip_line(text)
            continue
        if end < 0 and not text.ended:
            text.fill(min(2 * text.left, limits.max_event + 1))
            continue
        block = text.held[text.at : end if end >= 0 else None]
        lines = block.split(b"\n")
        if len(block) <= limits.max_event and _is_utf8(block) and _are_events(lines):
            yield lines
        else:
            yield list(_checked_lines(lines, text.offset, number, end < 0, report, limits))
        number += len(lines)
        text.at += len(block) + (end >= 0)


def _skip_line(text: _Window) -> None:
    while text.fill(1):
        end = text.held.find(b"\n", text.at)
        text.at = end + 1 if end >= 0 else len(text.held)
        if end >= 0:
            return


def _are_events(lines: list[bytes]) -> bool:
    """Whether each line is one object and nothing else, as nearly always.

    msgspec's `decode_lines` is half as fast again, but takes two values in a line and one value over two lines: what
    counts as an event would depend on where blocks begin.
    """
    try:
        lengths = [len(value) for value in map(_decode, lines)]
    except (msgspec.DecodeError, RecursionError):
        return False
    return lengths == [len(line) for line in lines] and all(line[0] == _BRACE for line in lines)


def _checked_lines(
    lines: list[bytes], offset: int, before: int, torn: bool, report: _Report, limits: Limits
) -> Iterator[bytes]:
    """The events among `lines`, which begin at `offset` after `before` others; `torn` when the last has no line end."""
    for number, line in enumerate(lines, before + 1):
        event = line.strip(_SPACE)
        if len(line) > limits.max_event:
            report.add("too long", offset, f"more than {limits.max_event} bytes; skipped", number)
        elif event not in (b"", b"null"):  # null is how Go writes a list of no events
            fault = _fault(event)
            if fault is None:
                yield event
            elif torn and fault[0] == "broken":
                report.add("truncated", offset, f"the file ends inside this line ({fault[1]})", number)
            else:
                report.add(fault[0], offset, fault[1], number)
        offset += len(line) + 1


def _fault(data: bytes) -> tuple[Kind, str] | None:
    """What keeps `data` from being an event."""
    try:
        _decode(data)
    except msgspec.DecodeError as error:
        return "broken", str(error)
    except RecursionError:
        return "broken", "nested too deeply"
    if data[0] != _BRACE:
        return "not an object", f"begins with {chr(data[0])!r}"
    return None if _is_utf8(data) else ("not utf-8", "holds bytes that are no UTF-8 text")


def _is_utf8(data: bytes) -> bool:
    """msgspec does not look at the encoding of text that it only passes on."""
    if data.isascii():
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(data), DEFAULT.block):  # piecewise: one emoji makes a str four times its bytes
            decoder.decode(data[start : start + DEFAULT.block])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


# --- JSON arrays -----------------------------------------------------------------------------------------------------

_TAIL = 16 * 1024
"""How far from its end a block is searched for the last whole element; Ray's events have 1 to 3 kB."""
_HORIZON = 64 * 1024
"""Longest event that is recognised as the first one after damage."""
_TRIES = 10_000
"""Places tried after one damage (each 1 to 30 us): a list inside a Ray event has far fewer entries."""
_MARGIN = 64
"""What is this near to the end of the held text may look different with the next block: a number, an escape, a gap."""
_BRACKETS = re.compile(rb"(\}[ \t\r\n]*+,[ \t\r\n]*+(?=\{))|[{}\[\]]")
_OBJECT = re.compile(rb"[,}\[][ \t\r\n]*+(?=\{)")
_POSITION = re.compile(r"(trailing characters )?\(byte (\d+)\)")


class _Envelope(msgspec.Struct):
    """What an event has and no part of one: the collectors that write arrays refuse events without it."""

    session: str = msgspec.field(name="sessionName")


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


class _Damage(Exception):
    """The array cannot be followed from here; the next event is to be looked for from `skip` bytes on."""

    def __init__(self, kind: Kind, detail: str, *, at: int = 0, skip: int = 0) -> None:
        self.kind, self.detail, self.at, self.skip = kind, detail, at, skip


def _array_events(text: _Window, report: _Report, limits: Limits) -> Iterator[list[bytes]]:
    """The events of one array, or of several one after the other: block by block while all is well, element by
    element through a block that has something wrong in it."""
    inside, first, rescues, careful_until = False, False, 0, 0
    while not report.given_up:
        text.skip(_SPACE)
        byte = text.peek()
        if byte is None:
            break
        if byte == (_CLOSE if inside else _OPEN):
            if inside and not first:
                report.add("broken", text.offset, "no element between a comma and the closing bracket")
            inside = first = not inside
            text.at += 1
            continue
        first = False
        if inside and text.offset >= careful_until:
            text.fill(limits.block)
            events = _whole_elements(text, limits)
            if events is not None:
                inside = not text.ended
                yield events
                continue
            careful_until = text.offset + text.left
        try:
            if not inside:
                raise _Damage("garbage", "something that is no array follows an array")
            offset, element = text.offset, _element(text, limits)
            fault = _fault(element)
            if fault is None:
                yield [element]
            else:
                report.add(fault[0], offset, fault[1])
            follows = text.peek()
            if follows not in (_COMMA, _CLOSE, None):
                raise _Damage("broken", "no comma after an element")
            inside = follows != _CLOSE
            text.take(1)
        except _Damage as damage:
            report.add(damage.kind, text.offset + damage.at, damage.detail)
            rescues += 1
            inside = rescues <= limits.max_rescues and _resynchronise(text, damage.skip)
            if not inside and text.fill(1):
                report.give_up(text.offset)
    if inside and not report.given_up:
        report.add("truncated", text.offset, "the file ends before the array does")


def _whole_elements(text: _Window, limits: Limits) -> list[bytes] | None:
    """The elements from here to the last one held whole; None when they need a closer look."""
    end, bracket = len(text.held), b""  # at the end of the file the closing bracket is in the text
    if not text.ended:
        boundary = _last_boundary(text.held, max(text.at, end - _TAIL))
        end, bracket = text.held.rfind(b",", text.at, max(boundary, text.at)), b"]"
    if end < 0 or end - text.at > limits.max_event:
        return None
    part = b"".join((b"[", memoryview(text.held)[text.at : end], bracket))
    try:
        events = [bytes(element) for element in _decode_list(part)]  # a Raw would keep the whole block in memory
    except (msgspec.DecodeError, RecursionError):
        return None
    if not _is_utf8(part) or not all(event[0] == _BRACE for event in events):
        return None
    text.at = end + len(bracket)  # past the comma
    return events


def _last_boundary(text: bytes, start: int) -> int:
    """Where the last element seems to begin: after the last `},` before a `{` on the outermost level; -1 for nowhere.

    A guess that ignores strings, to be confirmed by the decoder: brackets in strings nearly always come in pairs.
    """
    level = outermost = 0
    found = -1
    for bracket in _BRACKETS.finditer(text, start):
        level += 1 if bracket[0] in (b"{", b"[") else -1
        if bracket[1] and (found < 0 or level <= outermost):
            outermost, found = level, bracket.end()
    return found


def _element(text: _Window, limits: Limits) -> bytes:
    """The element here; the text is left at what follows it and its white space."""
    while True:
        end, fault = _value_end(memoryview(text.held)[text.at :])
        if end > limits.max_event:
            raise _Damage("too long", f"more than {limits.max_event} bytes; skipped", skip=limits.max_event)
        if end > text.left - _MARGIN and not text.ended:
            text.fill(min(2 * text.left, limits.max_event + _MARGIN + 1))
        elif fault is None:
            return text.take(end).strip(_SPACE)
        elif end == text.left:
            raise _Damage("truncated", "the file ends inside this element, or this element never ends", skip=1)
        else:
            raise _Damage("broken", fault, at=end, skip=1)


def _value_end(data: memoryview) -> tuple[int, str | None]:
    """Where the JSON value ends that `data` begin with, or where and why it cannot go on.

    msgspec tells it only in its message; the tests hold it to that.
    """
    try:
        _decode(data)
    except RecursionError:
        return 0, "nested too deeply"
    except msgspec.DecodeError as error:
        position = _POSITION.search(str(error))
        if position is None:  # truncated
            return len(data), str(error)
        if position[1]:
            return int(position[2]) - 1, None  # it counts the first trailing character as read
        return int(position[2]), str(error)
    return len(data), None


def _resynchronise(text: _Window, skip: int) -> bool:
    """Go to the next certain begin of an event after damage; False when none was found.

    Certain is: a whole object with a session name, as an element of a list. Lists inside events have no such objects,
    and inside a string their quotes would be escaped.
    """
    text.take(skip)
    for _ in range(_TRIES):
        text.fill(_HORIZON)
        end = min(text.at + _HORIZON, len(text.held))
        if _is_event(memoryview(text.held)[text.at : end]):
            return True
        before = _OBJECT.search(text.held, text.at, end)
        if before is None and end == len(text.held) and text.ended:
            text.at = end
            return False
        text.at = before.end() if before else end - _MARGIN
    return False


def _is_event(data: memoryview) -> bool:
    try:
        _decode_envelope(data)
    except RecursionError:
        return False
    except msgspec.DecodeError as error:
        return "trailing characters" in str(error)  # which msgspec only minds after it has decoded the event
    return True
