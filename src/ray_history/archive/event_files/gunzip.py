"""From the stored body of a file to its text, out of damaged gzip too.

Invariants:
* the first two bytes decide whether the body is gzip;
* text unpacked before a damaged or cut place comes out, but for the step that meets the damage; nothing after it does;
* a wrong checksum costs no text, it is only reported;
* no more text comes out than `Limits.max_bytes`, and no piece of it is longer than `PIECE`.
"""

from __future__ import annotations

from collections.abc import Iterator

from isal import igzip_lib, isal_zlib

from .problems import Limits, Report
from .window import PIECE, Window

STEP = 2 * 1024
"""Compressed bytes per call. A call that meets damage loses its output, so the text lost before a damaged place is
some 20 kB. isal's igzip unpacks Ray's events at 1.7 GB/s in such steps (2.1 in large ones), zlib at 0.9. Its isal_zlib
would be no choice: 1.8.0 forgets up to 6 bytes of `unused_data` when a member ends that near to the end of a step."""
LARGE_STEP = 32 * 1024
"""For who takes a file whole or not at all."""
_MAX_HEADER = 128 * 1024
"""A gzip header with the largest extra field (64 KiB) and generous names."""


def decompressed(body: Window, report: Report, limits: Limits, step: int = STEP) -> Iterator[bytes]:
    """The decompressed text in pieces, and no more of it than the limit."""
    body.fill(2)
    packed = body.held.startswith(b"\x1f\x8b")
    left = limits.max_bytes
    for piece in _gunzip(body, report, step) if packed else iter(lambda: body.take(PIECE), b""):
        if len(piece) > left:
            report.add("too large", limits.max_bytes, f"more than {limits.max_bytes} bytes; the rest was not read")
            yield piece[:left]
            return
        left -= len(piece)
        yield piece


def _gunzip(body: Window, report: Report, step: int) -> Iterator[bytes]:
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
            taken = body.take(step) if inflate.needs_input else b""
            try:
                piece = inflate.decompress(taken, PIECE)
            except igzip_lib.error as error:  # type: ignore[misc]  # isal's stub calls the class an instance
                report.add("gzip", total, f"damaged; the rest from {step} compressed bytes before it is lost ({error})")
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
