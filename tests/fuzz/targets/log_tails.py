"""Bundles of log tails, and the log files assembled from them."""

from __future__ import annotations

import re
import sys
import zlib

import msgspec

from ray_history.archive import layout, log_tails
from ray_history.archive.log_tails import BundleWriter, CorruptBundle, Entry, Tail, portable_path, stitch
from ray_history.archive.session_files import list_session
from tests.fuzz.target import target
from tests.fuzz.targets.objects import CLUSTER, NODE, SESSION, new_store

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_MAGIC = b"RAYTAIL\x01"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _bundles() -> list[bytes]:
    small, large, empty = BundleWriter(), BundleWriter(), BundleWriter()
    small.add("raylet.out", 1, 0, b"first line\n")
    for number in range(4):
        large.add(f"worker-{number}.out", number, 100 * number, b"line of a worker\n" * 20)
    large.empty.append("empty.log")
    return [small.finish(), large.finish(), empty.finish()]


def _headers() -> list[bytes]:
    return [bundle[16 : log_tails.header_size(bundle)] for bundle in _bundles()]


def _entries(bundle: bytes) -> tuple[Entry, ...]:
    try:
        assert log_tails.header_size(bundle) <= (64 << 20) + 16
        return log_tails.parse_header(bundle)
    except CorruptBundle:
        return ()


def _read_all(bundle: bytes) -> None:
    for entry in _entries(bundle)[:20]:
        try:
            data = log_tails.read_entry(entry, bundle[entry.position : entry.position + entry.size])
        except CorruptBundle:
            continue
        assert len(data) == entry.length <= log_tails.MAX_ENTRY
        assert zlib.crc32(data) == entry.crc32


@target("log_tail_bundles", _bundles, tokens=(_MAGIC, b"RAYTAIL\x02", b"\x28\xb5\x2f\xfd"))
def log_tail_bundles(data: bytes) -> None:
    """A bundle has the bytes that its checksums confirm, or it is a CorruptBundle."""
    _read_all(data)


@target("log_tail_headers", _headers, tokens=(b'"offset":', b'"length":', b'"generation":', b'"empty":[""]', b"\xff"))
def log_tail_headers(data: bytes) -> None:
    """A header with a right checksum may say anything: what is read of it is complete or a CorruptBundle, and a file
    is covered once, from its start to its end, by bytes and gaps."""
    bundle = _MAGIC + len(data).to_bytes(4, "little") + zlib.crc32(data).to_bytes(4, "little") + data
    _read_all(bundle)
    entries = _entries(bundle)
    for entry in entries:
        assert msgspec.json.decode(msgspec.json.encode(entry), type=Entry) == entry
    tails = [Tail(str(number), entry) for number, entry in enumerate(entries)]
    for whole in (None, 0, 150, 1 << 40):
        plan = stitch(whole, tails, lambda entry: entry.crc32 % 2 == 0)
        position = 0
        for start, end in sorted([*((part.start, part.end) for part in plan.segments), *plan.gaps]):
            assert start == position < end
            position = end
        assert position == plan.size


@target("log_paths", lambda: [b"raylet.out", b"a\\b\n\xff", "é/\x9b".encode(), b"old/worker-1.out"])
def log_paths(data: bytes) -> None:
    """The name of any file on a disk is UTF-8 without control characters, and has one name as a name of its own."""
    name = portable_path(data.decode(errors="surrogateescape"))
    name.encode()
    assert not _CONTROL.search(name)
    if b"\\" not in data and name.isprintable() and "\\" not in name:
        assert portable_path(name) == name == data.decode()


_FRAMES = zstd.compress(b"first line\n", 1) + zstd.compress(b"line of a worker\n" * 20, 1) * 4


@target(
    "log_files", _headers, tokens=(b'"offset":', b"9223372036854775807", b'"generation":', b'"empty":["a"]', b'"old/')
)
def log_files(data: bytes) -> None:
    """Files that hostile bundles describe can be listed and read; they have no more bytes than the bundle says, and
    unreadable ranges are gaps and problems."""
    bundle = _MAGIC + len(data).to_bytes(4, "little") + zlib.crc32(data).to_bytes(4, "little") + data + _FRAMES
    prefix = layout.session_prefix("", CLUSTER, SESSION)
    store, session = new_store(
        [
            (layout.tail_key("", CLUSTER, SESSION, NODE, 7), bundle),
            (layout.log_key(prefix, NODE, "raylet.out"), b"first line\nsecond line\n"),
        ]
    )
    logs = list_session(store, session).logs(store)
    held = sum(entry.length for entry in _entries(bundle)) + 23
    for log_file in logs.list(NODE)[:20]:
        assert logs.find(NODE, log_file.name).name.endswith(log_file.name.removeprefix("old/"))
        reader = logs.open(log_file)
        content = b"".join(reader.stream())
        assert len(content) <= min(held, log_file.size)
        assert b"".join(reader.last_lines(-1)) == content
        last = b"".join(reader.last_lines(2))
        assert last.count(b"\n") <= 2
        assert content.endswith(last) or reader.gaps
        assert b"".join(reader.stream(3, 9)) in content or reader.gaps
        for older in logs.earlier(log_file)[:3]:
            logs.open(older).read(0, 100)
