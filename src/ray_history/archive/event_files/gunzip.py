"""Decompresses the body of an event file, damaged gzip included.

Invariants:
* the first two bytes decide whether the body is gzip;
* text before a damaged or cut place is returned, except that of the step that meets the damage; nothing after it is;
* a wrong checksum is only reported and costs no text;
* at most `Limits.max_bytes` of text are returned, in pieces of at most `PIECE`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from isal import igzip_lib, isal_zlib

from .window import PIECE, Limits, Report, Window

STEP = 2 * 1024
"""Compressed bytes per call. A call that meets damage loses its output, which is some 20 kB of text. isal's igzip_lib
unpacks Ray's events at 1.7 GB/s in such steps (2.1 in large ones), zlib at 0.9. isal_zlib is not used: in 1.8.0 its
`unused_data` lacks up to 6 bytes if a member ends that near to the end of a step."""
LARGE_STEP = 32 * 1024
"""Compressed bytes per call for a reader that discards a damaged file as a whole."""
_MAX_HEADER = 128 * 1024
"""Longest gzip header: the largest extra field (64 KiB), and as much for names."""


def decompressed(body: Window, report: Report, limits: Limits, step: int = STEP) -> Iterator[bytes]:
    """The decompressed text in pieces, up to the limit."""
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
    """The text of all gzip members."""
    total = members = 0
    while body.fill(1):
        body.fill(_MAX_HEADER)
        begin = _after_gzip_header(body.held, body.at)
        if begin is None:
            report.add("gzip", total, f"no gzip header after {members} compressed parts; the rest was not read")
            return
        body.at = begin
        size = yield from _inflate_member(body, report, step, total)
        if size is None:
            return
        total += size
        members += 1
        body.skip(b"\0")  # padding, which gzip allows


def _inflate_member(body: Window, report: Report, step: int, total: int) -> Generator[bytes, None, int | None]:
    """The text of one member without its header; returns its size, or None if nothing can be read after it."""
    # Headers and checksums are checked here, as a decompressor that checks them itself withholds the text if they
    # are wrong.
    inflate, checksum, size = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE), 0, 0
    while not inflate.eof:
        taken = body.take(step) if inflate.needs_input else b""
        try:
            piece = inflate.decompress(taken, PIECE)
        except igzip_lib.error as error:  # type: ignore[misc]  # isal's stub calls the class an instance
            lost = f"damaged; the rest from {step} compressed bytes before it is lost ({error})"
            report.add("gzip", total + size, lost)
            return None
        if not taken and not piece and not inflate.eof:
            report.add("truncated", total + size, "the compressed data end in the middle")
            return None
        checksum, size = isal_zlib.crc32(piece, checksum), size + len(piece)
        yield piece
    body.give_back(inflate.unused_data)
    if not body.fill(8):
        report.add("truncated", total + size, "the checksum after the compressed data is cut")
        return None
    if body.take(8) != checksum.to_bytes(4, "little") + (size % 2**32).to_bytes(4, "little"):
        report.add("gzip", total + size, f"wrong checksum: damage somewhere in the {size} bytes before")
    return size


def _after_gzip_header(data: bytes, start: int) -> int | None:
    """End of the gzip header (RFC 1952) at `start`; None if there is none, or only a part of it."""
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
