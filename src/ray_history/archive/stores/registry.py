"""The storage backends: one entry each. A new backend is a module beside this one and an entry here.

Only the module of the backend in use is imported: their client libraries are large.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self, cast
from urllib.parse import SplitResult

from .interface import Store


class StorageSettings(Protocol):
    """The settings of one backend."""

    @property
    def url(self) -> str:
        """The place, without credentials."""

    @classmethod
    def from_url(cls, parts: SplitResult, env: Mapping[str, str]) -> Self:
        """From a storage URL; `env` holds credentials and whatever the URL does not say."""

    @classmethod
    def from_environment(cls, root: str, env: Mapping[str, str], config: Mapping[str, str]) -> Self:
        """From the variables and the JSON config file of KubeRay's Go binaries."""

    def open(self) -> Store:
        """The store. Sends no request yet: `Store.check` does."""


@dataclass(frozen=True, slots=True)
class Backend:
    """How a backend is named, and where its settings are."""

    scheme: str
    """Of its storage URLs."""
    example: str
    upstream: str
    """Its name in `STORAGE_BACKEND` and `--storage-backend`; empty if KubeRay has no such backend."""
    settings: str
    """Module and class."""

    def load(self) -> type[StorageSettings]:
        return cast("type[StorageSettings]", pkgutil.resolve_name(f"{__package__}.{self.settings}"))


BACKENDS = (
    Backend("file", "file:///dir", "localtest", "directory:DirectorySettings"),
    Backend("s3", "s3://bucket/prefix", "s3", "s3:S3Settings"),
    Backend("gs", "gs://bucket/prefix", "gcs", "gcs:GcsSettings"),
    Backend("az", "az://container/prefix", "azureblob", "azure:AzureSettings"),
    Backend("oss", "oss://bucket/prefix", "aliyunoss", "oss:OssSettings"),
)
MEMORY = Backend("memory", "memory://name", "", "memory:MemorySettings")
"""For tests: visible to this process only, so it is not listed for users."""

URL_FORMS = ", ".join(backend.example for backend in BACKENDS)
URL_SCHEMES = tuple(backend.scheme for backend in BACKENDS)

BY_SCHEME: Mapping[str, Backend] = {backend.scheme: backend for backend in (*BACKENDS, MEMORY)}
BY_UPSTREAM_NAME: Mapping[str, Backend] = {backend.upstream: backend for backend in BACKENDS}


def open_store(settings: StorageSettings) -> Store:
    """The store behind the settings."""
    return settings.open()
