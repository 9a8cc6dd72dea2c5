"""An archive in S3, Google Cloud Storage, Azure Blob Storage, Aliyun OSS or memory, through obstore.

obstore's synchronous calls release the interpreter lock and are what we use, from threads: its asynchronous ones can
abort the process at exit (a finalisation race measured in a quarter of short runs).

What a backend cannot do: OSS knows no `If-None-Match` (users report 501), so `create` sends its own header for it;
listings of all of them hide directory markers' trailing slash, see `_without_markers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO, Literal

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from ..errors import NotFound, Unreachable
from ..settings import OssSettings
from .clients import PROBING, WORKING, CloudSettings, Patience, build
from .failures import translated
from .interface import READ_CHUNK, Level, ObjectInfo, chunks_of, require_key, require_prefix
from .provision import create_bucket

PART_SIZE = 8 * 1024 * 1024
"""Bodies up to here are one put; larger ones go up in parts of this size (10,000 parts: up to 78 GiB)."""

PARTS_AT_ONCE = 3
"""Parts of one upload in flight: 24 MiB beside the one being read fits a 256 MiB sidecar."""

_STREAM_RESUMES = 5


class CloudStore:
    """Objects in a bucket, below the root the settings name."""

    def __init__(self, settings: CloudSettings, patience: Patience = WORKING) -> None:
        self.url = settings.url
        self._settings = settings
        with translated(self.url, "opening"):
            self._client = build(settings, patience)
            self._creator = self._client
            self._create_mode: Literal["create", "overwrite"] = "create"
            if isinstance(settings, OssSettings):
                self._creator = build(settings, patience, headers={"x-oss-forbid-overwrite": "true"})
                self._create_mode = "overwrite"

    def check(self, *, create: bool = False) -> None:
        probe = build(self._settings, PROBING)
        try:
            with translated(self.url, "opening"):
                next(iter(obstore.list(probe, chunk_size=1)), None)
        except NotFound:
            if not create:
                raise
            create_bucket(self._settings)

    def put(self, key: str, data: bytes) -> None:
        if len(data) > PART_SIZE:
            self.put_stream(key, (data[at : at + PART_SIZE] for at in range(0, len(data), PART_SIZE)))
            return
        with translated(self.url, f"writing {key} to"):
            obstore.put(self._client, require_key(key), data, use_multipart=False)

    def put_stream(self, key: str, source: BinaryIO | Iterable[bytes]) -> int:
        require_key(key)
        parts = _parts(chunks_of(source))
        first = next(parts, b"")
        second = next(parts, None)
        if second is None:
            self.put(key, first)
            return len(first)
        size = 0
        failure: list[BaseException] = []

        def counted() -> Iterator[bytes]:
            nonlocal size
            try:
                for part in chain((first, second), parts):
                    size += len(part)
                    yield part
            except BaseException as error:
                failure.append(error)
                raise

        with translated(self.url, f"writing {key} to"):
            try:
                obstore.put(
                    self._client,
                    key,
                    counted(),
                    use_multipart=True,
                    chunk_size=PART_SIZE,
                    max_concurrency=PARTS_AT_ONCE,
                )
            except Exception:
                if failure:  # the source's own error, not the client's wrapping of it
                    raise failure[0] from None
                raise
        return size

    def create(self, key: str, data: bytes) -> bool:
        with translated(self.url, f"creating {key} in"):
            try:
                obstore.put(self._creator, require_key(key), data, mode=self._create_mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            except BaseError as error:
                if "FileAlreadyExists" in str(error):  # OSS
                    return False
                raise
        return True

    def get(self, key: str) -> bytes:
        return b"".join(self.stream(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if length <= 0:
            return b""
        with translated(self.url, f"reading {key} from"):
            try:
                result = obstore.get(self._client, require_key(key), options={"range": (start, start + length)})
                begin, end = result.range
                data = bytes(result.bytes())
            except BaseError:
                if self.head(key).size <= start:  # stores refuse a range that starts behind the end
                    return b""
                raise
        if begin != start or len(data) != end - begin:
            raise Unreachable(f"reading {key} from {self.url}: asked for {length} bytes at {start}, got {len(data)}")
        return data

    def stream(self, key: str, start: int = 0) -> Iterator[bytes]:
        """A connection lost on the way is taken up again where it broke, as long as the object is the same one."""
        position, etag, resumes = start, None, 0
        while True:
            try:
                with translated(self.url, f"reading {key} from"):
                    options: obstore.GetOptions = {"if_match": etag} if etag else {}
                    if position:
                        options["range"] = {"offset": position}
                    result = obstore.get(self._client, require_key(key), options=options)
                    etag, end = result.meta["e_tag"], result.meta["size"]
                    for chunk in result.stream(min_chunk_size=READ_CHUNK):
                        data = bytes(chunk)
                        position += len(data)
                        yield data
                if position != end:
                    raise Unreachable(f"reading {key} from {self.url}: the body ended at {position} of {end} bytes")
                return
            except Unreachable:
                if position == start:
                    if start and self.head(key).size <= start:
                        return
                    raise
                resumes += 1
                if resumes > _STREAM_RESUMES:
                    raise

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        with translated(self.url, f"listing {prefix or '/'} of"):
            pages = obstore.list(self._client, require_prefix(prefix) or None, chunk_size=1000)
            yield from _without_markers(
                ObjectInfo(found["path"], found["size"], found["last_modified"], found["e_tag"])
                for page in pages
                for found in page
            )

    def list_level(self, prefix: str = "") -> Level:
        prefix = require_prefix(prefix)
        with translated(self.url, f"listing {prefix or '/'} of"):
            result = obstore.list_with_delimiter(self._client, prefix or None)
        directories = tuple(result["common_prefixes"])
        markers = {prefix, *directories}
        objects = (
            ObjectInfo(found["path"], found["size"], found["last_modified"], found["e_tag"])
            for found in result["objects"]
        )
        return Level(directories, tuple(o for o in objects if o.size or o.key not in markers))

    def head(self, key: str) -> ObjectInfo:
        with translated(self.url, f"reading {key} from"):
            found = obstore.head(self._client, require_key(key))
        return ObjectInfo(found["path"], found["size"], found["last_modified"], found["e_tag"])

    def copy(self, source: str, target: str) -> None:
        with translated(self.url, f"copying {source} to {target} in"):
            obstore.copy(self._client, require_key(source), require_key(target), overwrite=True)

    def delete(self, key: str) -> None:
        self.delete_many([key])

    def delete_many(self, keys: Iterable[str]) -> None:
        wanted = [require_key(key) for key in keys]
        with translated(self.url, f"deleting {len(wanted)} objects of"):
            try:
                if wanted:
                    obstore.delete(self._client, wanted)
            except FileNotFoundError:  # some backends stop at the first that is gone already
                for key in wanted:
                    self._delete_if_there(key)

    def _delete_if_there(self, key: str) -> None:
        try:
            obstore.delete(self._client, key)
        except FileNotFoundError:
            return


def _parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of exactly PART_SIZE, the last one shorter."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= PART_SIZE:
            yield bytes(held[:PART_SIZE])
            del held[:PART_SIZE]
    if held:
        yield bytes(held)


def _without_markers(found: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
    """Leave out KubeRay's directory markers: empty objects `dir/`, listed as `dir` right before what is in it."""
    held: ObjectInfo | None = None
    for entry in found:
        if held is not None and not entry.key.startswith(held.key + "/"):
            yield held
        held = None
        if entry.size == 0:
            held = entry
        else:
            yield entry
    if held is not None:
        yield held
