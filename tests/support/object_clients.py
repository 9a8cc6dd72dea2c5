"""Settings and shortcuts for the obstore clients of tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import obstore
from obstore.store import ObjectStore

if TYPE_CHECKING:
    from obstore.store import RetryConfig

NO_RETRIES: RetryConfig = {"max_retries": 0}
FIVE_MIB = 5 * 1024 * 1024
"""The smallest part of a multipart upload."""


def keys(store: ObjectStore, prefix: str | None = None) -> list[str]:
    return [str(meta["path"]) for meta in obstore.list(store, prefix).collect()]
