"""Buckets of objects in memory, the storage of the object stand-ins, without HTTP.

Invariants: keys are stored byte for byte (`a//b` and `/a` are two ordinary keys); a listing is in the order of the
keys' UTF-8 bytes; every write gets a higher generation; one lock makes each operation atomic, so of several
racing creates exactly one wins.
"""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

PAGE_SIZE = 1000


class ObjectError(Exception):
    """An error of the XML API: HTTP status, the service's error code, and a message."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True)
class StoredObject:
    """One object as it was written."""

    body: bytes
    etag: str
    generation: int
    modified: float


@dataclass
class Upload:
    """A multipart upload that is not completed yet."""

    key: str
    parts: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """One page of a listing; `next_token` is None on the last."""

    objects: list[tuple[str, StoredObject]]
    prefixes: list[str]
    next_token: str | None


def etag_of(body: bytes) -> str:
    """Return the quoted entity tag of a body: its MD5, as the real services use for single puts."""
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


class Bucket:
    """One bucket."""

    def __init__(self) -> None:
        self.objects: dict[str, StoredObject] = {}
        self.uploads: dict[str, Upload] = {}
        self._lock = threading.RLock()
        self._generation = 0

    def put(
        self, key: str, body: bytes, *, allowed: Callable[[StoredObject | None], None] | None = None
    ) -> StoredObject:
        """Write an object; `allowed` gets the current object and raises ObjectError to refuse the write."""
        with self._lock:
            if allowed is not None:
                allowed(self.objects.get(key))
            self._generation += 1
            stored = StoredObject(body, etag_of(body), self._generation, time.time())
            self.objects[key] = stored
            return stored

    def get(self, key: str) -> StoredObject:
        """Return an object, or raise NoSuchKey."""
        with self._lock:
            if key not in self.objects:
                raise ObjectError(404, "NoSuchKey", "The specified key does not exist.")
            return self.objects[key]

    def delete(self, key: str) -> bool:
        """Delete an object; return whether it existed."""
        with self._lock:
            return self.objects.pop(key, None) is not None

    def begin_upload(self, key: str) -> str:
        """Start a multipart upload and return its id."""
        with self._lock:
            self._generation += 1
            upload_id = f"upload-{self._generation}"
            self.uploads[upload_id] = Upload(key)
            return upload_id

    def put_part(self, upload_id: str, number: int, body: bytes) -> str:
        """Store one part and return its entity tag; nothing is visible before the upload is complete."""
        with self._lock:
            self._upload(upload_id).parts[number] = body
            return etag_of(body)

    def complete_upload(
        self,
        upload_id: str,
        parts: list[tuple[int, str]],
        *,
        allowed: Callable[[StoredObject | None], None] | None = None,
    ) -> StoredObject:
        """Join the named parts to one object; a part that was never sent, or changed, is refused."""
        with self._lock:
            upload = self._upload(upload_id)
            for number, etag in parts:
                if number not in upload.parts or etag_of(upload.parts[number]).strip('"') != etag.strip('"'):
                    raise ObjectError(400, "InvalidPart", f"Part {number} was not found or its ETag differs.")
            body = b"".join(upload.parts[number] for number, _ in sorted(parts))
            stored = self.put(upload.key, body, allowed=allowed)
            del self.uploads[upload_id]
            return stored

    def abort_upload(self, upload_id: str) -> None:
        """Forget a multipart upload and its parts."""
        with self._lock:
            self._upload(upload_id)
            del self.uploads[upload_id]

    def page(
        self,
        *,
        prefix: str = "",
        delimiter: str = "",
        start_after: str = "",
        token: str | None = None,
        max_keys: int = PAGE_SIZE,
    ) -> Page:
        """Return one page of a listing: objects, and with a delimiter the common prefixes, each counted once."""
        after = max(start_after, base64.urlsafe_b64decode(token).decode() if token else "", key=str.encode)
        objects: list[tuple[str, StoredObject]] = []
        prefixes: list[str] = []
        last = ""
        with self._lock:
            items = sorted(self.objects.items(), key=lambda item: item[0].encode())
        for key, stored in items:
            if not key.startswith(prefix) or key.encode() <= after.encode():
                continue
            folder = _common_prefix(key, prefix, delimiter)
            # The token of the page before names a common prefix: the keys below it were counted there.
            if folder is not None and ((token and folder == after) or (prefixes and prefixes[-1] == folder)):
                continue
            if len(objects) + len(prefixes) >= min(max_keys, PAGE_SIZE):
                return Page(objects, prefixes, base64.urlsafe_b64encode(last.encode()).decode())
            if folder is not None:
                prefixes.append(folder)
                last = folder
            else:
                objects.append((key, stored))
                last = key
        return Page(objects, prefixes, None)

    def _upload(self, upload_id: str) -> Upload:
        if upload_id not in self.uploads:
            raise ObjectError(404, "NoSuchUpload", "The specified upload does not exist.")
        return self.uploads[upload_id]


def _common_prefix(key: str, prefix: str, delimiter: str) -> str | None:
    if not delimiter:
        return None
    end = key.find(delimiter, len(prefix))
    return None if end < 0 else key[: end + len(delimiter)]
