"""The backend for Azure Blob Storage."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit
from urllib.request import Request

from obstore.store import AzureStore

from ray_history.archive.errors import Misconfigured, NotFound

from .addresses import DEFAULT_BUCKET, bucket_and_root
from .cloud import CloudSettings, Patience
from .failures import Hints
from .provision import send_create_request

if TYPE_CHECKING:
    from obstore.store import AzureConfig

_API_VERSION = "2021-12-02"

_AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The well-known key of Microsoft's emulator, which opens nothing else."""


@dataclass(frozen=True, slots=True)
class AzureSettings(CloudSettings):
    """Azure Blob Storage by connection string, or by account URL and Azure's default credentials."""

    hints = Hints(
        "the container in --storage or AZURE_STORAGE_CONTAINER",
        "AZURE_STORAGE_ACCOUNT_URL or the endpoint in AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_ACCOUNT_URL",
        "AZURE_STORAGE_CONNECTION_STRING, or the identity of this machine or pod",
    )

    container: str
    root: str = ""
    account: str = ""
    endpoint: str = ""
    """Blob endpoint of the account, without the container."""
    account_key: str | None = field(default=None, repr=False)
    sas: str | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"az://{bucket_and_root(self.container, self.root)}"

    @classmethod
    def build(cls, bucket: str, root: str, env: Mapping[str, str], config: Mapping[str, str]) -> Self:
        container = bucket or config.get("azureContainer") or env.get("AZURE_STORAGE_CONTAINER") or DEFAULT_BUCKET
        connection = config.get("azureConnectionString") or env.get("AZURE_STORAGE_CONNECTION_STRING") or ""
        account_url = config.get("azureAccountURL") or env.get("AZURE_STORAGE_ACCOUNT_URL") or ""
        mode = (config.get("azureAuthMode") or env.get("AZURE_STORAGE_AUTH_MODE") or "").strip().lower()
        by_identity = mode in ("workload_identity", "default")
        if connection and not by_identity:
            return cls._from_connection_string(container, root, connection)
        if mode == "connection_string":
            raise Misconfigured("AZURE_STORAGE_AUTH_MODE is connection_string: set AZURE_STORAGE_CONNECTION_STRING too")
        if not account_url:
            raise Misconfigured(
                "no Azure account given: set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_URL "
                "(https://<account>.blob.core.windows.net) to use Azure's default credentials"
            )
        parts = urlsplit(account_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Misconfigured(
                f"AZURE_STORAGE_ACCOUNT_URL {account_url!r} is not a URL such as https://<account>.blob.core.windows.net"
            )
        account = parts.path.strip("/") or parts.hostname.split(".")[0]
        return cls(container, root, account, account_url.rstrip("/"))

    @classmethod
    def _from_connection_string(cls, container: str, root: str, connection: str) -> Self:
        fields = dict(part.split("=", 1) for part in connection.split(";") if "=" in part)
        if fields.get("UseDevelopmentStorage", "").lower() == "true":
            return cls(container, root, "devstoreaccount1", "http://127.0.0.1:10000/devstoreaccount1", _AZURITE_KEY)
        account = fields.get("AccountName", "")
        endpoint = fields.get("BlobEndpoint", "").rstrip("/")
        if not endpoint and account:
            protocol = fields.get("DefaultEndpointsProtocol", "https")
            endpoint = f"{protocol}://{account}.blob.{fields.get('EndpointSuffix', 'core.windows.net')}"
        account = account or (urlsplit(endpoint).hostname or "").split(".")[0]
        key, sas = fields.get("AccountKey"), fields.get("SharedAccessSignature")
        if not endpoint or not (key or sas):
            raise Misconfigured(
                "AZURE_STORAGE_CONNECTION_STRING is incomplete: it needs AccountName or BlobEndpoint, "
                "and AccountKey or SharedAccessSignature"
            )
        return cls(container, root, account, endpoint, key, sas)

    def client(self, patience: Patience, headers: Mapping[str, str]) -> AzureStore:
        config: AzureConfig = {"account_name": self.account, "endpoint": self.endpoint}
        if self.account_key:
            config["account_key"] = self.account_key
        if self.sas:
            config["sas_key"] = self.sas
        allow_http = self.endpoint.startswith("http://")
        return AzureStore(
            self.container,
            prefix=self.root or None,
            config=config,
            client_options=patience.client_options(allow_http=allow_http, headers=headers),
            retry_config=patience.retry_options(),
            credential_provider=self._default_credentials(),
        )

    def _default_credentials(self) -> Any:
        """Azure's default credential chain if `azure-identity` is installed; None leaves it to the client."""
        if self.account_key or self.sas:
            return None
        try:
            from obstore.auth.azure import AzureCredentialProvider
        except ImportError:
            return None
        return AzureCredentialProvider()

    def create_bucket(self) -> None:
        # obstore has no call for it: the request is signed here, or carries a token of the default credential.
        address = f"{self.endpoint}/{self.container}?restype=container"
        if self.sas:
            address += "&" + self.sas.lstrip("?")
        moment = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = {"x-ms-date": moment, "x-ms-version": _API_VERSION, "Content-Length": "0"}
        if self.account_key:
            headers["Authorization"] = self._shared_key(headers)
        elif not self.sas:
            headers["Authorization"] = f"Bearer {self._bearer_token()}"
        send_create_request(self.url, self.hints, Request(address, headers=headers, method="PUT"))  # noqa: S310

    def _shared_key(self, headers: dict[str, str]) -> str:
        """Azure's Shared Key authorisation of a request that has no body and no other headers."""
        path = urlsplit(self.endpoint).path
        resource = f"/{self.account}{path}/{self.container}\nrestype:container"
        signed = f"x-ms-date:{headers['x-ms-date']}\nx-ms-version:{headers['x-ms-version']}"
        text = "PUT" + "\n" * 12 + signed + "\n" + resource
        key = base64.b64decode(self.account_key or "")
        signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
        return f"SharedKey {self.account}:{signature}"

    def _bearer_token(self) -> str:
        try:
            from azure.identity import DefaultAzureCredential
        except ImportError as error:
            raise NotFound(
                f"{self.url}: the container does not exist and cannot be created with the identity of this machine; "
                "create it first, or pip install 'ray-history[azure]'"
            ) from error
        with DefaultAzureCredential() as credential:
            return str(credential.get_token("https://storage.azure.com/.default").token)
