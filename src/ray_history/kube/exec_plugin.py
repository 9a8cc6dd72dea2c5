"""Credentials from an exec plugin, as kubeconfigs of EKS, GKE and AKS use it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from .access import valid_token
from .errors import Misconfigured, Unreachable

_TIMEOUT = 60.0
_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True, slots=True)
class Credential:
    """The credential that a plugin returned."""

    token: str | None = field(default=None, repr=False)
    certificate: tuple[bytes, bytes] | None = field(default=None, repr=False)
    expires: float | None = None


class ExecPlugin:
    """Runs the plugin whenever a credential is needed. Plugins have caches of their own, as kubectl expects."""

    def __init__(self, entry: Mapping[str, Any], directory: Path, cluster: Callable[[], dict[str, Any]]) -> None:
        self._entry, self._cluster = entry, cluster
        self._version = str(entry.get("apiVersion", ""))
        command = str(entry.get("command", ""))
        if not command or self._version not in _VERSIONS:
            raise Misconfigured(f"the exec entry of a kubeconfig needs a command and an apiVersion of {_VERSIONS}")
        self._command = str(directory / command) if "/" in command else command

    async def credential(self) -> Credential:
        spec: dict[str, Any] = {"interactive": False}
        if self._entry.get("provideClusterInfo"):
            spec["cluster"] = self._cluster()
        info = {"kind": "ExecCredential", "apiVersion": self._version, "spec": spec}
        added = {str(variable["name"]): str(variable["value"]) for variable in self._entry.get("env") or []}
        output = await self._run({**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(info)})
        try:
            status = json.loads(output)["status"]
            certificate = status.get("clientCertificateData"), status.get("clientKeyData")
            expires = status.get("expirationTimestamp")
            return Credential(
                valid_token(status["token"], f"the answer of {self._command}") if status.get("token") else None,
                (certificate[0].encode(), certificate[1].encode()) if all(certificate) else None,
                datetime.fromisoformat(expires).timestamp() if expires else None,
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Misconfigured(f"{self._command} returned no ExecCredential with a status") from None

    async def _run(self, environment: Mapping[str, str]) -> bytes:
        arguments = [str(word) for word in self._entry.get("args") or []]
        try:
            process = await asyncio.create_subprocess_exec(
                self._command,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=dict(environment),
            )
        except OSError as error:
            hint = str(self._entry.get("installHint") or "").strip()
            raise Misconfigured(f"{self._command} of the kubeconfig cannot be run: {error}. {hint}".strip()) from None
        try:
            output, errors = await asyncio.wait_for(process.communicate(), _TIMEOUT)
        except TimeoutError:
            raise Unreachable(f"{self._command} of the kubeconfig did not return within {_TIMEOUT:g} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            message = errors.decode(errors="replace").strip()[-500:]
            raise Unreachable(f"{self._command} of the kubeconfig failed with {process.returncode}: {message}")
        return output
