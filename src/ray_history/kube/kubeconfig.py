"""Kubeconfig files: merged as kubectl does it, with any context and every kind of credentials.

Not supported: `auth-provider`, which kubectl itself dropped in 1.26.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from .access import Access, Identity, read_token, tls_context, valid_token
from .errors import Misconfigured
from .exec_plugin import ExecPlugin


def default_kubeconfigs(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The files that kubectl would read, as far as they exist."""
    named = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    files = named or [Path(environ.get("HOME", "/")) / ".kube" / "config"]
    return tuple(file for file in files if file.is_file())


def from_kubeconfig(files: Sequence[Path], context: str | None = None) -> Access:
    """The API server of a context, by default of the current one."""
    merged = _Merged.read(files)
    name = context or merged.current_context
    if not name:
        raise Misconfigured(
            f"{merged.names} has no current-context; choose one of: {', '.join(merged.entries['context'])}"
        )
    chosen = merged.find("context", name).content
    cluster = merged.find("cluster", str(chosen.get("cluster", "")))
    user = merged.find("user", str(chosen["user"])) if chosen.get("user") else _Entry({}, cluster.directory)
    server = str(cluster.content.get("server", "")).rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise Misconfigured(f"cluster {chosen.get('cluster')} of {merged.names} has no server address")
    source = _IdentitySource(cluster, user, merged.names)
    tls_name = str(cluster.content["tls-server-name"]) if cluster.content.get("tls-server-name") else None
    proxy = str(cluster.content["proxy-url"]) if cluster.content.get("proxy-url") else None
    return Access(server, source.look_up, name, tls_name, proxy)


_KINDS = ("context", "cluster", "user")


class _Entry(NamedTuple):
    """A named entry of a kubeconfig, and the directory to which its relative paths refer."""

    content: Mapping[str, Any]
    directory: Path


@dataclass(slots=True)
class _Merged:
    """The entries of several files. If a name occurs twice, the first file wins."""

    names: str
    """The names of the files, for messages."""
    current_context: str = ""
    entries: dict[str, dict[str, _Entry]] = field(default_factory=lambda: {kind: {} for kind in _KINDS})
    """By kind and name."""

    @classmethod
    def read(cls, files: Sequence[Path]) -> _Merged:
        if not files:
            raise Misconfigured("there is no kubeconfig; use --kubeconfigs FILE, or set KUBECONFIG")
        merged = cls(", ".join(str(file) for file in files))
        for file in files:
            content = _load(file)
            merged.current_context = merged.current_context or str(content.get("current-context") or "")
            for kind, entries in merged.entries.items():
                for name, entry in _entries(content, kind, file):
                    entries.setdefault(name, entry)
        return merged

    def find(self, kind: str, name: str) -> _Entry:
        entries = self.entries[kind]
        if name not in entries:
            available = ", ".join(sorted(entries)) or "none"
            raise Misconfigured(f"{self.names} has no {kind} {name!r}; available: {available}")
        return entries[name]


def _load(file: Path) -> dict[str, Any]:
    try:
        content = YAML(typ="safe", pure=True).load(file.read_text())
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        message = str(error).replace("\n", " ")
        raise Misconfigured(f"the kubeconfig {file} cannot be read: {message}") from None
    if not isinstance(content, dict):
        raise Misconfigured(f"{file} is not a kubeconfig")
    return content


def _entries(content: Mapping[str, Any], kind: str, file: Path) -> Iterator[tuple[str, _Entry]]:
    entries = content.get(f"{kind}s") or []
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or not isinstance(entry.get(kind) or {}, dict):
            raise Misconfigured(f"{file} is not a kubeconfig: {kind}s must be a list of named entries")
        yield str(entry.get("name", "")), _Entry(entry.get(kind) or {}, file.parent)


class _IdentitySource:
    """Credentials from a cluster and a user entry. Files are read again for each identity."""

    def __init__(self, cluster: _Entry, user: _Entry, names: str) -> None:
        self._cluster, self._user, self._names = cluster.content, user.content, names
        self._cluster_directory, self._user_directory = cluster.directory, user.directory
        plugin = self._user.get("exec")
        self._plugin = ExecPlugin(plugin, user.directory, self._cluster_info) if plugin else None
        if self._user.get("auth-provider"):
            raise Misconfigured(f"{names} uses auth-provider, which kubectl dropped in 1.26: use an exec plugin")
        self._cached: tuple[str | None, tuple[bytes, bytes] | None, ssl.SSLContext] | None = None
        self._tls(self._certificate())  # so that wrong files are reported at startup

    async def look_up(self) -> Identity:
        user, headers = self._user, self._impersonation()
        token, certificate, expires = self._token(), self._certificate(), None
        if self._plugin is not None:
            issued = await self._plugin.credential()
            token, certificate, expires = issued.token or token, issued.certificate or certificate, issued.expires
        if token:
            headers["Authorization"] = f"Bearer {token}"
        elif user.get("username"):
            pair = f"{user['username']}:{user.get('password', '')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        return Identity(headers, self._tls(certificate), expires)

    def _tls(self, certificate: tuple[bytes, bytes] | None) -> ssl.SSLContext | None:
        """The same context as long as nothing has changed, because connections are reused by context."""
        if not str(self._cluster["server"]).startswith("https:"):
            return None
        authority = self._authority()
        if self._cached is None or self._cached[:2] != (authority, certificate):
            verify = not self._cluster.get("insecure-skip-tls-verify", False)
            context = tls_context(authority, verify=verify)
            if certificate:
                _load_certificate(context, *certificate, self._names)
            self._cached = authority, certificate, context
        return self._cached[2]

    def _token(self) -> str | None:
        if self._user.get("token"):
            return valid_token(str(self._user["token"]), f"the user's token in {self._names}")
        if self._user.get("tokenFile"):
            return read_token(self._user_directory / str(self._user["tokenFile"]))
        return None

    def _impersonation(self) -> dict[str, str]:
        headers = {}
        if self._user.get("as"):
            headers["Impersonate-User"] = str(self._user["as"])
        if self._user.get("as-groups") or self._user.get("as-uid") or self._user.get("as-user-extra"):
            raise Misconfigured(
                f"{self._names} uses impersonation with groups or extras, which is not supported; use `as` alone"
            )
        return headers

    def _authority(self) -> str | None:
        found = _content(self._cluster, "certificate-authority", self._cluster_directory, self._names)
        return found.decode("ascii", "replace") if found else None

    def _certificate(self) -> tuple[bytes, bytes] | None:
        certificate = _content(self._user, "client-certificate", self._user_directory, self._names)
        key = _content(self._user, "client-key", self._user_directory, self._names)
        if (certificate is None) != (key is None):
            raise Misconfigured(f"{self._names} must have both client-certificate and client-key, or neither")
        return (certificate, key) if certificate and key else None

    def _cluster_info(self) -> dict[str, Any]:
        """The description of the cluster for exec plugins that request it."""
        info: dict[str, Any] = {"server": self._cluster.get("server")}
        if authority := self._authority():
            info["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
        for name in ("tls-server-name", "insecure-skip-tls-verify", "proxy-url"):
            if self._cluster.get(name):
                info[name] = self._cluster[name]
        return info


def _content(entry: Mapping[str, Any], name: str, directory: Path, names: str) -> bytes | None:
    """Inline data, or the content of a file relative to the directory of the kubeconfig."""
    try:
        if data := entry.get(f"{name}-data"):
            return base64.b64decode(str(data), validate=True)
        if file := entry.get(name):
            return (directory / str(file)).read_bytes()
    except (OSError, binascii.Error) as error:
        raise Misconfigured(f"{name} of {names} cannot be read: {error}") from None
    return None


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, names: str) -> None:
    """Python's ssl reads certificates only from files: write a private one and remove it at once."""
    with tempfile.TemporaryDirectory(prefix="ray-history-") as folder:
        both = Path(folder) / "pair.pem"
        both.touch(0o600)
        both.write_bytes(certificate + b"\n" + key)
        try:
            context.load_cert_chain(both)
        except (OSError, ssl.SSLError) as error:
            raise Misconfigured(f"the client certificate of {names} cannot be used: {error}") from None
