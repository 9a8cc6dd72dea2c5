"""Stores: where the archive's objects are kept. `registry` names the backends; each is one module here."""

from __future__ import annotations

from .interface import Level, ObjectInfo, Store
from .registry import open_store

__all__ = ["Level", "ObjectInfo", "Store", "open_store"]
