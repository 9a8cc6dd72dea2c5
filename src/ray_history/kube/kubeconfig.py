"""Kubeconfig files: several merged as kubectl merges them, any context, every way of kubectl's to be known.

Not taken: `auth-provider`, which kubectl itself dropped in 1.26.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from .access import Access, Identity, read_token, tls_context, usable_token
from .errors import Misconfigured
from .exec_plugin import ExecPlugin


def default_kubeconfigs(environ: Mapping[str, str] = os.environ) -> tuple[Path, ...]:
    """The files that kubectl would read, as far as they are there."""
    named = [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    files = named or [Path(environ.get("HOME", "/")) / ".kube" / "config"]
    return tuple(file for file in files if file.is_file())


def from_kubeconfig(files: Sequence[Path], context: str | None = None) -> Access:
    """The API server of a context; of the current one if none is named."""
    merged = _merged(files)
    shown = ", ".join(str(file) for file in files)
    name = context or merged["current-context"]
    if not name:
        raise Misconfigured(f"{shown} has no current-context; choose one of: {', '.join(merged['contexts'])}")
    chosen, _ = _named(merged["contexts"], name, "context", shown)
    cluster, at = _named(merged["clusters"], str(chosen.get("cluster", "")), "cluster", shown)
    user, user_at = _named(merged["users"], str(chosen["user"]), "user", shown) if chosen.get("user") else ({}, at)
    server = str(cluster.get("server", "")).rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise Misconfigured(f"cluster {chosen.get('cluster')} of {shown} has no server address")
    source = _Source(cluster, at, user, user_at, shown)
    tls_name = str(cluster["tls-server-name"]) if cluster.get("tls-server-name") else None
    proxy = str(cluster["proxy-url"]) if cluster.get("proxy-url") else None
    return Access(server, source.look_up, name, tls_name, proxy)


def _merged(files: Sequence[Path]) -> dict[str, Any]:
    """The first file that names a thing wins."""
    merged: dict[str, Any] = {"current-context": "", "contexts": {}, "clusters": {}, "users": {}}
    if not files:
        raise Misconfigured("there is no kubeconfig; use --kubeconfigs FILE, or set KUBECONFIG")
    for file in files:
        try:
            content = YAML(typ="safe", pure=True).load(file.read_text())
        except (OSError, UnicodeDecodeError, YAMLError) as error:
            told = str(error).replace("\n", " ")
            raise Misconfigured(f"the kubeconfig {file} cannot be read: {told}") from None
        if not isinstance(content, dict):
            raise Misconfigured(f"{file} is no kubeconfig")
        merged["current-context"] = merged["current-context"] or content.get("current-context") or ""
        for kind in ("contexts", "clusters", "users"):
            for entry in content.get(kind) or []:
                if not isinstance(entry, dict) or not isinstance(entry.get(kind[:-1]) or {}, dict):
                    raise Misconfigured(f"{file} is no kubeconfig: {kind} must be a list of named entries")
                merged[kind].setdefault(str(entry.get("name", "")), (entry.get(kind[:-1]) or {}, file.parent))
    return merged


def _named(entries: Mapping[str, Any], name: str, kind: str, shown: str) -> tuple[dict[str, Any], Path]:
    if name not in entries:
        there = ", ".join(sorted(entries)) or "none"
        raise Misconfigured(f"{shown} has no {kind} {name!r}; there is: {there}")
    found: tuple[dict[str, Any], Path] = entries[name]
    return found


class _Source:
    """Makes an identity of what the cluster and user entries say; files are read again each time."""

    def __init__(
        self, cluster: Mapping[str, Any], at: Path, user: Mapping[str, Any], user_at: Path, shown: str
    ) -> None:
        self._cluster, self._at, self._user, self._user_at, self._shown = cluster, at, user, user_at, shown
        self._plugin = ExecPlugin(user["exec"], user_at, self._cluster_info) if user.get("exec") else None
        if user.get("auth-provider"):
            raise Misconfigured(f"{shown} uses auth-provider, which kubectl dropped in 1.26: use an exec plugin")
        self._kept: tuple[str | None, tuple[bytes, bytes] | None, ssl.SSLContext] | None = None
        self._tls(self._certificate())  # a wrong file is told at start

    async def look_up(self) -> Identity:
        user, headers = self._user, self._impersonation()
        token, certificate, expires = self._token(), self._certificate(), None
        if self._plugin is not None:
            given = await self._plugin.credential()
            token, certificate, expires = given.token or token, given.certificate or certificate, given.expires
        if token:
            headers["Authorization"] = f"Bearer {token}"
        elif user.get("username"):
            pair = f"{user['username']}:{user.get('password', '')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        return Identity(headers, self._tls(certificate), expires)

    def _tls(self, certificate: tuple[bytes, bytes] | None) -> ssl.SSLContext | None:
        """The same context as long as nothing changed: connections are kept by it."""
        if not str(self._cluster["server"]).startswith("https:"):
            return None
        authority = self._authority()
        if self._kept is None or self._kept[:2] != (authority, certificate):
            verify = not self._cluster.get("insecure-skip-tls-verify", False)
            context = tls_context(authority, verify=verify)
            if certificate:
                _load_certificate(context, *certificate, self._shown)
            self._kept = authority, certificate, context
        return self._kept[2]

    def _token(self) -> str | None:
        if self._user.get("token"):
            return usable_token(str(self._user["token"]), f"the user's token in {self._shown}")
        if self._user.get("tokenFile"):
            return read_token(self._user_at / str(self._user["tokenFile"]))
        return None

    def _impersonation(self) -> dict[str, str]:
        headers = {}
        if self._user.get("as"):
            headers["Impersonate-User"] = str(self._user["as"])
        if self._user.get("as-groups") or self._user.get("as-uid") or self._user.get("as-user-extra"):
            raise Misconfigured(
                f"{self._shown} impersonates with groups or extras, which is not supported; use `as` alone"
            )
        return headers

    def _authority(self) -> str | None:
        found = _content(self._cluster, "certificate-authority", self._at, self._shown)
        return found.decode("ascii", "replace") if found else None

    def _certificate(self) -> tuple[bytes, bytes] | None:
        certificate = _content(self._user, "client-certificate", self._user_at, self._shown)
        key = _content(self._user, "client-key", self._user_at, self._shown)
        if (certificate is None) != (key is None):
            raise Misconfigured(f"client-certificate and client-key go together in {self._shown}")
        return (certificate, key) if certificate and key else None

    def _cluster_info(self) -> dict[str, Any]:
        """What an exec plugin that asks for it is told about the cluster."""
        info: dict[str, Any] = {"server": self._cluster.get("server")}
        if authority := self._authority():
            info["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
        for name in ("tls-server-name", "insecure-skip-tls-verify", "proxy-url"):
            if self._cluster.get(name):
                info[name] = self._cluster[name]
        return info


def _content(entry: Mapping[str, Any], name: str, at: Path, shown: str) -> bytes | None:
    """Data in the file itself, or the file that it names, from the kubeconfig's own directory."""
    try:
        if data := entry.get(f"{name}-data"):
            return base64.b64decode(str(data), validate=True)
        if file := entry.get(name):
            return (at / str(file)).read_bytes()
    except (OSError, binascii.Error) as error:
        raise Misconfigured(f"{name} of {shown} cannot be read: {error}") from None
    return None


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, shown: str) -> None:
    """Python's ssl takes certificates from files only: written for our eyes alone, and gone at once."""
    with tempfile.TemporaryDirectory(prefix="ray-history-") as folder:
        both = Path(folder) / "pair.pem"
        both.touch(0o600)
        both.write_bytes(certificate + b"\n" + key)
        try:
            context.load_cert_chain(both)
        except (OSError, ssl.SSLError) as error:
            raise Misconfigured(f"the client certificate of {shown} cannot be used: {error}") from None
