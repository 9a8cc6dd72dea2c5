"""Zstandard, and unpacking of foreign frames within limits."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["Unpackable", "unpacked", "zstd"]

_WINDOW: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 23}
"""So that a hostile frame cannot claim gigabytes."""


class Unpackable(ValueError):
    """The bytes are not one whole frame of an acceptable size."""


def unpacked(frame: bytes, limit: int) -> bytes:
    """The content of one frame, which has at most `limit` bytes; no more than one byte beyond it is unpacked."""
    decompressor = zstd.ZstdDecompressor(options=_WINDOW)
    try:
        data = decompressor.decompress(frame, limit + 1)  # one more, to notice a longer frame
    except zstd.ZstdError as error:
        raise Unpackable(f"cannot be decompressed: {error}") from error
    if len(data) > limit:
        raise Unpackable(f"has more than {limit} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise Unpackable("ends early, or is followed by other bytes")
    return data
