"""The backend for tests: the memory of this process, shared by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from obstore.store import MemoryStore

from .addresses import bucket_and_root
from .cloud import CloudSettings, Patience
from .failures import Hints

_stores: dict[str, MemoryStore] = {}


@dataclass(frozen=True, slots=True)
class MemorySettings(CloudSettings):
    """A name for a place in memory."""

    hints = Hints("the name in --storage", "nothing", "nothing", "nothing")

    name: str

    @property
    def url(self) -> str:
        return f"memory://{self.name}"

    @classmethod
    def build(cls, bucket: str, root: str, _env: Mapping[str, str], _config: Mapping[str, str]) -> Self:
        return cls(bucket_and_root(bucket, root))

    def client(self, _patience: Patience, _headers: Mapping[str, str]) -> MemoryStore:
        return _stores.setdefault(self.name, MemoryStore())
