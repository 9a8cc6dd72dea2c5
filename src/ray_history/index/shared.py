"""The index in the archive: built by one server, downloaded by all.

Invariants:
* the key of a data object contains the digest of its content. It is never overwritten with other content, so publishing
  an index does not disturb the download of another;
* the manifest is put after all data objects that it names, in one put: there is always the old index, the new one or
  none;
* nothing is trusted: every file is compared with the manifest's digest, both when it is downloaded and published;
* an index of a higher version is not replaced, and neither is one that covers the same sources or more;
* data objects that the current manifest does not name are deleted an hour after they were put, by the store's clock:
  until then another server may be about to put a manifest that names them;
* deletions may cross, so that a manifest names an object that is gone. Downloading then raises `Damaged`. Read the
  manifest again, because there may be a newer one; if it is the same, `discard` it, rebuild and publish.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from ray_history.archive import layout
from ray_history.archive.catalog import Session
from ray_history.archive.errors import ArchiveError, NotFound
from ray_history.archive.stores import ObjectInfo, Store
from ray_history.archive.stores.interface import chunks_of, read_small

from .manifest import (
    MANIFEST,
    MAX_SIZE,
    VERSION,
    Damaged,
    IndexFile,
    Manifest,
    OtherVersion,
    decode,
    describe_file,
    encode,
    new_digest,
)

logger = logging.getLogger(__name__)

_FILES_AT_ONCE = 4
_UNNAMED_FOR = timedelta(hours=1)
_STEPS = 8
"""Publishing takes three steps; each collision with another publisher takes one or two more."""


class SharedIndex:
    """The index of one session below `history-index/`. For several threads."""

    def __init__(self, store: Store, session: Session) -> None:
        self._store = store
        self._session = session
        self._prefix = layout.index_prefix(session.root, session.cluster, session.name)
        self._manifest_key = layout.join(self._prefix, MANIFEST)

    def manifest(self) -> Manifest | None:
        """The current manifest; None if there is none that this program can use."""
        body = self._body()
        if body is None:
            return None
        try:
            return self._decode(body)
        except OtherVersion as error:
            logger.info("%s/%s: %s", self._store.url, self._manifest_key, error)
        except Damaged as error:
            logger.warning("%s/%s: %s; the index will be rebuilt", self._store.url, self._manifest_key, error)
        return None

    def fetch(self, manifest: Manifest, directory: Path) -> None:
        """Download all files into `directory`, except those that it has. Raises `Damaged` if one is not available."""
        directory.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="index") as threads:
            list(threads.map(lambda file: self._fetch(file, directory), _largest_first(manifest.files)))

    def publish(self, directory: Path, manifest: Manifest) -> bool:
        """Make the files in `directory` the session's index; False if there is another one that is as good.

        It looks, makes one step, and looks again, because other servers may publish, sweep or discard meanwhile.
        """
        ours = encode(manifest)
        self._decode(ours)  # an unreadable manifest must not be published
        written = False
        for _ in range(_STEPS):
            body = self._body()  # before the listing, which then has all that this manifest names
            there = {found.key: found for found in self._store.list(self._prefix)}
            if body is not None and body != ours and (written or self._must_stay(body, there, manifest)):
                self._sweep(body, there.values())
                return False
            if missing := self._missing(manifest, there):
                self._put_files(directory, missing)
            elif body is None:
                written = self._store.create(self._manifest_key, ours)
            elif body != ours:
                self._store.put(self._manifest_key, ours)
                written = True
            else:
                self._sweep(body, there.values())
                return True
        logger.warning("%s/%s keeps changing; not published", self._store.url, self._prefix)
        return False

    def discard(self) -> None:
        """Remove the index: the manifest first, so that no server starts to download the other files."""
        self._store.delete(self._manifest_key)
        self._store.delete_many([found.key for found in self._store.list(self._prefix)])

    def _key(self, file: IndexFile) -> str:
        return layout.join(self._prefix, f"{file.name.removesuffix('.parquet')}-{file.digest[:16]}.parquet")

    def _body(self) -> bytes | None:
        try:
            return read_small(self._store, self._manifest_key, MAX_SIZE)
        except NotFound:
            return None

    def _decode(self, body: bytes) -> Manifest:
        manifest = decode(body)
        if manifest.session != self._session.name:
            raise Damaged(f"it is the index of {manifest.session}")
        return manifest

    def _must_stay(self, body: bytes, there: dict[str, ObjectInfo], ours: Manifest) -> bool:
        """Whether the current manifest, in `body`, must not or need not be replaced by ours."""
        try:
            current = self._decode(body)
        except OtherVersion as error:
            return error.version > VERSION
        except Damaged:
            return False
        if self._missing(current, there):
            return False
        theirs, mine = set(current.sources), set(ours.sources)
        return mine < theirs or (mine == theirs and current.other_sources == ours.other_sources)

    def _missing(self, manifest: Manifest, there: dict[str, ObjectInfo]) -> list[IndexFile]:
        sizes = {key: found.size for key, found in there.items()}
        return [file for file in manifest.files if sizes.get(self._key(file)) != file.size]

    def _put_files(self, directory: Path, files: Sequence[IndexFile]) -> None:
        with ThreadPoolExecutor(_FILES_AT_ONCE, thread_name_prefix="index") as threads:
            list(threads.map(lambda file: self._put(file, directory), _largest_first(files)))

    def _put(self, file: IndexFile, directory: Path) -> None:
        path = directory / file.name
        with path.open("rb") as source:
            self._store.put_stream(self._key(file), _verified(chunks_of(source), file, str(path)))

    def _fetch(self, file: IndexFile, directory: Path) -> None:
        target = directory / file.name
        if target.exists() and describe_file(target) == file:
            return
        key = self._key(file)
        part = directory / f"{file.name}.part"
        try:
            with part.open("wb") as received:
                for chunk in _verified(self._store.stream(key), file, f"{self._store.url}/{key}"):
                    received.write(chunk)
            part.replace(target)
        except NotFound as error:
            raise Damaged(f"{self._store.url}/{key} does not exist, although the manifest names it") from error
        finally:
            part.unlink(missing_ok=True)

    def _sweep(self, current: bytes, there: Iterable[ObjectInfo]) -> None:
        """Delete old data objects that no manifest names. Errors are only logged."""
        try:
            named = {self._manifest_key, *map(self._key, self._decode(current).files)}
        except Damaged:
            return
        now = max(found.modified for found in there)
        stale = [found.key for found in there if found.key not in named and now - found.modified > _UNNAMED_FOR]
        try:
            self._store.delete_many(stale)
        except ArchiveError as error:
            logger.warning("%d files of old indexes could not be deleted: %s", len(stale), error)


def _largest_first(files: Iterable[IndexFile]) -> list[IndexFile]:
    """The order in which parallel work finishes earliest."""
    return sorted(files, key=lambda file: -file.size)


def _verified(chunks: Iterable[bytes], file: IndexFile, where: str) -> Iterator[bytes]:
    """Pass chunks through; raises `Damaged`, after the last one at the latest, if they are not the file's content. A
    chunk is hashed while the caller uses it."""
    digest, size = new_digest(), 0
    with ThreadPoolExecutor(1, thread_name_prefix="digest") as thread:
        for chunk in chunks:
            hashing = thread.submit(digest.update, chunk)
            size += len(chunk)
            if size > file.size:
                break
            yield chunk
            hashing.result()
    if size != file.size:
        raise Damaged(f"{where} does not have {file.size} bytes")
    if digest.hexdigest() != file.digest:
        raise Damaged(f"{where} is not what was written there")
