"""An archive in S3, Google Cloud Storage, Azure Blob Storage, Aliyun OSS or memory, through obstore.

Only obstore's synchronous calls are used, from threads; they release the interpreter lock. Its asynchronous ones can
abort the process at exit, by a finalisation race seen in a quarter of short runs.

Listings of all backends omit the trailing slash of directory markers, see `_without_markers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain, count
from typing import TYPE_CHECKING, BinaryIO, ClassVar, Literal, Self
from urllib.parse import SplitResult, unquote

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from ray_history.archive.errors import Misconfigured, NotFound, Unreachable

from .addresses import clean_root
from .failures import Hints, translated
from .interface import READ_CHUNK, Level, ObjectInfo, Store, chunks_of, require_key, require_prefix

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

Client = S3Store | GCSStore | AzureStore | MemoryStore

PART_SIZE = 8 * 1024 * 1024
"""Bodies up to this size are one put; larger ones are uploaded in parts of it (10,000 parts: up to 78 GiB)."""

PARTS_AT_ONCE = 3
"""Parts of one upload in flight: with the one being read, 32 MiB of a 256 MiB sidecar."""

_MAX_RESUMES = 5
"""Lost connections per stream."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits of one operation."""

    deadline: float
    """Seconds after which it is not retried."""
    stalled: float
    """Seconds without a byte after which an attempt fails."""
    attempt: float
    """Seconds one attempt may take even if bytes arrive."""
    retries: int

    def client_options(self, *, allow_http: bool, headers: Mapping[str, str]) -> ClientConfig:
        options: ClientConfig = {
            "allow_http": allow_http,
            "connect_timeout": timedelta(seconds=min(5, self.stalled)),
            "read_timeout": timedelta(seconds=self.stalled),
            "timeout": timedelta(seconds=self.attempt),
            "user_agent": "ray-history",
        }
        if headers:
            options["default_headers"] = dict(headers)
        return options

    def retry_options(self) -> RetryConfig:
        return {
            "max_retries": self.retries,
            "retry_timeout": timedelta(seconds=self.deadline),
            "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
        }


WORKING = Patience(deadline=60, stalled=30, attempt=600, retries=10)
"""Survives a store that is overloaded or restarts; a part of 8 MiB still fits into 30 s at 2 Mbit/s."""

PROBING = Patience(deadline=4, stalled=4, attempt=4, retries=2)
"""Reports a wrong setting within seconds."""


class CloudSettings(ABC):
    """The settings of a backend that obstore has a client for."""

    __slots__ = ()

    hints: ClassVar[Hints]
    create_headers: ClassVar[Mapping[str, str]] = {}
    """Headers that let a put fail if the object exists, for a backend without `If-None-Match`."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The place, without credentials."""

    @classmethod
    @abstractmethod
    def build(cls, bucket: str, root: str, env: Mapping[str, str], config: Mapping[str, str]) -> Self:
        """The settings; an empty `bucket` is looked up in `config` and `env`."""

    @classmethod
    def from_url(cls, parts: SplitResult, env: Mapping[str, str]) -> Self:
        if not parts.netloc:
            raise Misconfigured(f"storage URL {parts.geturl()!r} names no bucket: write {parts.scheme}://bucket/prefix")
        return cls.build(parts.netloc, clean_root(unquote(parts.path)), env, {})

    @classmethod
    def from_environment(cls, root: str, env: Mapping[str, str], config: Mapping[str, str]) -> Self:
        return cls.build("", clean_root(root), env, config)

    @abstractmethod
    def client(self, patience: Patience, headers: Mapping[str, str]) -> Client:
        """A client that sends `headers` with each request."""

    def create_bucket(self) -> None:
        """Create the bucket; it is no error if another collector was faster."""
        raise NotFound(f"{self.url}: the bucket does not exist; create it first or check {self.hints.bucket}")

    def open(self) -> Store:
        return CloudStore(self)


class CloudStore:
    """Objects in a bucket, below the root of the settings."""

    def __init__(self, settings: CloudSettings, patience: Patience = WORKING) -> None:
        self.url = settings.url
        self._settings = settings
        with self._translated("opening"):
            self._client = settings.client(patience, {})
            self._creator = self._client
            self._create_mode: Literal["create", "overwrite"] = "create"
            if settings.create_headers:
                self._creator = settings.client(patience, settings.create_headers)
                self._create_mode = "overwrite"

    def _translated(self, doing: str) -> AbstractContextManager[None]:
        return translated(self.url, self._settings.hints, doing)

    def check(self, *, create: bool = False) -> None:
        probe = self._settings.client(PROBING, {})
        try:
            with self._translated("opening"):
                next(iter(obstore.list(probe, chunk_size=1)), None)
        except NotFound:
            if not create:
                raise
            self._settings.create_bucket()

    def put(self, key: str, data: bytes) -> None:
        if len(data) > PART_SIZE:
            self.put_stream(key, (data[at : at + PART_SIZE] for at in range(0, len(data), PART_SIZE)))
            return
        with self._translated(f"writing {key} to"):
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

        with self._translated(f"writing {key} to"):
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
                if failure:  # the source's own error, not the one the client wraps around it
                    raise failure[0] from None
                raise
        return size

    def create(self, key: str, data: bytes) -> bool:
        with self._translated(f"creating {key} in"):
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
        with self._translated(f"reading {key} from"):
            try:
                result = obstore.get(self._client, require_key(key), options={"range": (start, start + length)})
                begin, end = result.range
                data = bytes(result.bytes())
            except BaseError:
                if self.head(key).size <= start:  # stores refuse a range that starts at or after the end
                    return b""
                raise
        if begin != start or len(data) != end - begin:
            raise Unreachable(f"reading {key} from {self.url}: asked for {length} bytes at {start}, got {len(data)}")
        return data

    def stream(self, key: str, start: int = 0) -> Iterator[bytes]:
        position, etag = start, None
        for attempt in count():
            try:
                with self._translated(f"reading {key} from"):
                    result = obstore.get(self._client, require_key(key), options=_from_position(position, etag))
                    etag, end = result.meta["e_tag"], result.meta["size"]
                    for chunk in map(bytes, result.stream(min_chunk_size=READ_CHUNK)):
                        position += len(chunk)
                        yield chunk
                if position == end:
                    return
                raise Unreachable(f"reading {key} from {self.url}: the body ended at {position} of {end} bytes")
            except Unreachable:
                if position == start and self._ends_before(key, start):
                    return
                # A connection lost on the way is resumed from there, if the object is still the same one.
                if position == start or attempt == _MAX_RESUMES:
                    raise

    def _ends_before(self, key: str, start: int) -> bool:
        """Whether a read from `start` failed because the object ends before."""
        return start > 0 and self.head(key).size <= start

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        with self._translated(f"listing {prefix or '/'} of"):
            pages = obstore.list(self._client, require_prefix(prefix) or None, chunk_size=1000)
            yield from _without_markers(_object_info(found) for page in pages for found in page)

    def list_level(self, prefix: str = "") -> Level:
        prefix = require_prefix(prefix)
        with self._translated(f"listing {prefix or '/'} of"):
            result = obstore.list_with_delimiter(self._client, prefix or None)
        directories = tuple(result["common_prefixes"])
        markers = {prefix, *directories}
        objects = map(_object_info, result["objects"])
        return Level(directories, tuple(found for found in objects if found.size or found.key not in markers))

    def head(self, key: str) -> ObjectInfo:
        with self._translated(f"reading {key} from"):
            return _object_info(obstore.head(self._client, require_key(key)))

    def copy(self, source: str, target: str) -> None:
        with self._translated(f"copying {source} to {target} in"):
            obstore.copy(self._client, require_key(source), require_key(target), overwrite=True)

    def delete(self, key: str) -> None:
        self.delete_many([key])

    def delete_many(self, keys: Iterable[str]) -> None:
        wanted = [require_key(key) for key in keys]
        if not wanted:
            return
        try:
            self._delete_all(wanted)
        except Unreachable:  # obstore repeats no POST, not even if the server had just closed the idle connection
            self._delete_all(wanted)

    def _delete_all(self, keys: Sequence[str]) -> None:
        with self._translated(f"deleting {len(keys)} objects of"):
            try:
                obstore.delete(self._client, keys)
            except FileNotFoundError:  # some backends stop at the first missing object
                for key in keys:
                    self._delete_if_there(key)

    def _delete_if_there(self, key: str) -> None:
        try:
            obstore.delete(self._client, key)
        except FileNotFoundError:
            return


def _object_info(found: obstore.ObjectMeta) -> ObjectInfo:
    return ObjectInfo(found["path"], found["size"], found["last_modified"], found["e_tag"])


def _from_position(position: int, etag: str | None) -> obstore.GetOptions:
    options: obstore.GetOptions = {"if_match": etag} if etag else {}
    if position:
        options["range"] = {"offset": position}
    return options


def _parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of exactly `PART_SIZE`, except the last."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        while len(held) >= PART_SIZE:
            yield bytes(held[:PART_SIZE])
            del held[:PART_SIZE]
    if held:
        yield bytes(held)


def _without_markers(found: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
    """Without KubeRay's directory markers: empty objects `dir/`, listed as `dir` right before their contents."""
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
