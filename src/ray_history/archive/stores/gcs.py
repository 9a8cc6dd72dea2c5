"""The backend for Google Cloud Storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from obstore.store import GCSStore

from ray_history.archive.errors import Misconfigured

from .addresses import bucket_and_root, endpoint_url
from .cloud import CloudSettings, Patience
from .failures import Hints

if TYPE_CHECKING:
    from obstore.store import GCSConfig


@dataclass(frozen=True, slots=True)
class GcsSettings(CloudSettings):
    """Google Cloud Storage with Application Default Credentials."""

    hints = Hints(
        "the bucket in --storage or GCS_BUCKET",
        "the network, or STORAGE_EMULATOR_HOST",
        "the bucket's location",
        "GOOGLE_APPLICATION_CREDENTIALS (the key of a service account, or of an authorized user), or Workload Identity",
    )

    bucket: str
    root: str = ""
    endpoint: str | None = None
    """A server other than Google's (`STORAGE_EMULATOR_HOST`), used without credentials unless there is a token."""
    bearer_token: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"gs://{bucket_and_root(self.bucket, self.root)}"

    @classmethod
    def build(cls, bucket: str, root: str, env: Mapping[str, str], config: Mapping[str, str]) -> Self:
        bucket = bucket or config.get("gcsBucket") or env.get("GCS_BUCKET") or ""
        if not bucket:
            raise Misconfigured("no GCS bucket given: set GCS_BUCKET (or gcsBucket in the config file)")
        emulator = env.get("STORAGE_EMULATOR_HOST", "")
        endpoint = endpoint_url(emulator, "STORAGE_EMULATOR_HOST", plain=True)
        return cls(bucket, root, endpoint, env.get("GOOGLE_BEARER_TOKEN"))

    def client(self, patience: Patience, headers: Mapping[str, str]) -> GCSStore:
        config: GCSConfig = {}
        token = self.bearer_token
        if self.endpoint:
            config["base_url"] = self.endpoint
            token = token or "anybody"  # obstore 0.12 applies skip_signature to reads only
        if token:
            config["bearer_token"] = token
        allow_http = (self.endpoint or "").startswith("http://")
        return GCSStore(
            self.bucket,
            prefix=self.root or None,
            config=config,
            client_options=patience.client_options(allow_http=allow_http, headers=headers),
            retry_config=patience.retry_options(),
        )
