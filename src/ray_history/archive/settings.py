"""Where the archive is: one storage URL, or any of the ways to configure KubeRay's Go binaries.

Precedence, first match wins:
1. `--storage URL`, then `RAY_HISTORY_STORAGE`;
2. upstream's `STORAGE_BACKEND` (environment), then `--storage-backend` / `--runtime-class-name` (flags): the
   environment wins over flags, as upstream;
3. the archive of this user, `~/.ray-history/archive`; not in a pod, where it would be lost without notice.
A variable set to the empty string counts as unset. Credentials come from the environment only, never from the URL.
The JSON config file follows the rule of each Go backend, because an image swap must not change where data goes:
with a file, s3 takes endpoint, region, path style and SSL from it alone; azure and gcs overlay it on the environment;
oss reads it instead of the environment.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from ray_history.setting import setting

from .errors import Misconfigured
from .stores.registry import BY_SCHEME, BY_UPSTREAM_NAME, URL_FORMS, StorageSettings

logger = logging.getLogger(__name__)

DEFAULT_ARCHIVE = "~/.ray-history/archive"
"""Where the commands keep and find sessions on a laptop, if no storage is given."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The storage flags of the Go binaries; the environment overrides each."""

    backend: str = ""
    config_path: str = ""
    root: str = ""


@dataclass(frozen=True)
class StorageOptions:
    """Where the archive is, as given on the command line."""

    storage: str | None = setting(
        None, f"Archive URL: {URL_FORMS}.", metavar="URL", default_text=f"{DEFAULT_ARCHIVE}, but not in a pod"
    )
    storage_backend: str = setting(
        "",
        f"KubeRay's name of the backend ({', '.join(BY_UPSTREAM_NAME)}), configured by environment variables.",
        flags=("--storage-backend", "--runtime-class-name"),
        variable="STORAGE_BACKEND",
        metavar="NAME",
    )
    storage_backend_config_path: str = setting(
        "",
        "KubeRay's JSON configuration file of the storage backend.",
        flags=("--storage-backend-config-path", "--runtime-class-config-path"),
        variable="STORAGE_BACKEND_CONFIG_PATH",
        metavar="FILE",
    )
    storage_root_dir: str = setting(
        "",
        "Key prefix inside the bucket; for localtest, the directory.",
        flags=("--storage-root-dir", "--ray-root-dir"),
        variable="STORAGE_ROOT_DIR",
        metavar="PREFIX",
    )

    def resolve(self, environ: Mapping[str, str]) -> StorageSettings:
        """The settings that these options and the environment add up to."""
        upstream = Upstream(self.storage_backend, self.storage_backend_config_path, self.storage_root_dir)
        return resolve(self.storage, upstream, environ)

    def or_default(self, environ: Mapping[str, str], *, quiet: bool = False) -> Self:
        """These options, with the archive of this user, created if need be, if neither they nor the environment name
        one."""
        names = (self.storage, self.storage_backend, *map(environ.get, ("RAY_HISTORY_STORAGE", "STORAGE_BACKEND")))
        if any(names) or environ.get("KUBERNETES_SERVICE_HOST"):
            return self
        archive = Path(DEFAULT_ARCHIVE).expanduser()
        try:
            archive.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Misconfigured(
                f"no storage given, and {archive} cannot be created ({error.strerror}): use --storage URL"
            ) from None
        logger.log(
            logging.DEBUG if quiet else logging.INFO,
            "using the archive %s, because no storage is given",
            archive.as_uri(),
        )
        return replace(self, storage=archive.as_uri())


def resolve(url: str | None, upstream: Upstream, environ: Mapping[str, str]) -> StorageSettings:
    """The storage settings from flags, environment and config file."""
    env = {name: value for name, value in environ.items() if value}
    url = url or env.get("RAY_HISTORY_STORAGE")
    if url:
        return _from_url(url, env)
    name = (env.get("STORAGE_BACKEND") or upstream.backend).strip().lower()
    if not name:
        raise Misconfigured(f"no storage given: use --storage URL ({URL_FORMS}) or set RAY_HISTORY_STORAGE")
    backend = BY_UPSTREAM_NAME.get(name)
    if backend is None:
        raise Misconfigured(f"unknown storage backend {name!r}: use one of {', '.join(BY_UPSTREAM_NAME)}")
    root = env.get("STORAGE_ROOT_DIR") or env.get("RAY_ROOT_DIR") or upstream.root
    config = _read_config(env.get("STORAGE_BACKEND_CONFIG_PATH") or upstream.config_path)
    return backend.load().from_environment(root, env, config)


def _from_url(url: str, env: Mapping[str, str]) -> StorageSettings:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Misconfigured(f"invalid storage URL {url!r}: {error}") from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise Misconfigured(
            "the storage URL takes no credentials, query or fragment: put keys into the environment "
            "(AWS_ACCESS_KEY_ID, AZURE_STORAGE_CONNECTION_STRING, OSS_ACCESS_KEY_ID, ...)"
        )
    backend = BY_SCHEME.get(parts.scheme)
    if backend is None:
        raise Misconfigured(f"invalid storage URL {url!r}: use one of {URL_FORMS}")
    return backend.load().from_url(parts, env)


def _read_config(path: str) -> Mapping[str, str]:
    """The JSON config file of the Go binaries; numbers and booleans are accepted too, unlike upstream."""
    if not path:
        return {}
    try:
        raw = json.loads(Path(path).read_bytes() or b"{}")
    except OSError as error:
        raise Misconfigured(f"storage config file {path}: {error.strerror}") from error
    except ValueError as error:
        raise Misconfigured(f"storage config file {path} is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise Misconfigured(f'storage config file {path} must hold a JSON object such as {{"s3Bucket": "..."}}')
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in raw.items()
        if value not in (None, "")
    }
