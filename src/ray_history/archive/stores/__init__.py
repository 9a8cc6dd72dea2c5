"""Stores: where the archive's objects are kept."""

from __future__ import annotations

from ..settings import DirectorySettings, StorageSettings
from .cloud import CloudStore
from .concurrent import AsyncStore
from .directory import DirectoryStore
from .interface import Level, ObjectInfo, Store

__all__ = ["AsyncStore", "Level", "ObjectInfo", "Store", "open_store"]


def open_store(settings: StorageSettings) -> Store:
    """The store behind the settings; nothing is asked of it yet (`check` does that)."""
    if isinstance(settings, DirectorySettings):
        return DirectoryStore(settings.path)
    return CloudStore(settings)
