"""A store for code on an event loop: every call runs in a bounded pool of threads.

Cancelling a call that still waits for a thread drops it. One that runs already is left to end by its own deadline and
its result is dropped; streams and uploads stop at the next chunk, and the upload leaves no object behind.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, TypeVar

from .interface import Level, ObjectInfo, Store, chunks_of

T = TypeVar("T")

DEFAULT_CONCURRENCY = 32
"""Requests in flight: saturates a loopback S3 server; more only grows memory."""


class UploadCancelled(Exception):
    """The caller stopped waiting for an upload; it was aborted."""


class AsyncStore:
    """The store's operations as coroutines that never block the event loop."""

    def __init__(self, store: Store, concurrency: int = DEFAULT_CONCURRENCY) -> None:
        self.store = store
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="store")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(self, call: Callable[[], T]) -> T:
        """Run any store work, such as reading one event file, in the pool."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def put(self, key: str, data: bytes) -> None:
        await self.run(lambda: self.store.put(key, data))

    async def put_stream(self, key: str, source: BinaryIO | Iterable[bytes]) -> int:
        cancelled = threading.Event()

        def watched() -> Iterator[bytes]:
            for chunk in chunks_of(source):
                if cancelled.is_set():
                    raise UploadCancelled(key)
                yield chunk
            if cancelled.is_set():
                raise UploadCancelled(key)

        try:
            return await self.run(lambda: self.store.put_stream(key, watched()))
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def create(self, key: str, data: bytes) -> bool:
        return await self.run(lambda: self.store.create(key, data))

    async def get(self, key: str) -> bytes:
        return await self.run(lambda: self.store.get(key))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return await self.run(lambda: self.store.get_range(key, start, length))

    async def stream(self, key: str, start: int = 0) -> AsyncIterator[bytes]:
        chunks = self.store.stream(key, start)
        try:
            while (chunk := await self.run(lambda: next(chunks, None))) is not None:
                yield chunk
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                self._threads.submit(close)

    async def list(self, prefix: str = "") -> list[ObjectInfo]:
        return await self.run(lambda: list(self.store.list(prefix)))

    async def list_level(self, prefix: str = "") -> Level:
        return await self.run(lambda: self.store.list_level(prefix))

    async def head(self, key: str) -> ObjectInfo:
        return await self.run(lambda: self.store.head(key))

    async def copy(self, source: str, target: str) -> None:
        await self.run(lambda: self.store.copy(source, target))

    async def delete(self, key: str) -> None:
        await self.run(lambda: self.store.delete(key))

    async def delete_many(self, keys: Iterable[str]) -> None:
        wanted = tuple(keys)
        await self.run(lambda: self.store.delete_many(wanted))
