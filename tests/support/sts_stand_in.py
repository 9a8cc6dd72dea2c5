"""A stand-in for Alibaba Cloud's STS, which exchanges the OIDC token of a pod for short-lived keys (RRSA).

Only AssumeRoleWithOIDC, version 2015-04-01, answered in JSON.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any


@dataclass(frozen=True)
class IssuedKeys:
    """Issued keys, and when they expire."""

    security_token: str
    ends: datetime


class StsStandIn:
    """Checks requests and issues keys; `calls` also counts refused requests."""

    def __init__(self, *, role_arn: str, provider_arn: str, oidc_token: str, credential_seconds: float) -> None:
        self.role_arn = role_arn
        self.provider_arn = provider_arn
        self.oidc_token = oidc_token
        self.credential_seconds = credential_seconds
        self.calls = 0
        self.issued: dict[str, IssuedKeys] = {}
        self._lock = threading.Lock()

    def answer(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the JSON document for one request's parameters."""
        with self._lock:
            self.calls += 1
            number = self.calls
        problem = self._problem_with(form)
        if problem is not None:
            status, code, message = problem
            return status, {"Code": code, "Message": message, "RequestId": "stand-in"}
        access_key, token = f"STS.key-{number}", f"sts-token-{number}"
        ends = datetime.now(UTC) + timedelta(seconds=self.credential_seconds)
        self.issued[access_key] = IssuedKeys(token, ends)
        credentials = {
            "AccessKeyId": access_key,
            "AccessKeySecret": f"sts-secret-{number}",
            "SecurityToken": token,
            "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return 200, {"RequestId": "stand-in", "Credentials": credentials}

    def _problem_with(self, form: dict[str, str]) -> tuple[int, str, str] | None:
        if form["Action"] != "AssumeRoleWithOIDC":
            return 404, "InvalidAction.NotFound", "Specified api is not found, please check your url and method."
        if form.get("Version") != "2015-04-01":
            return 400, "InvalidVersion", "Specified parameter Version is not valid."
        if form.get("Format") != "JSON":
            return 400, "InvalidFormat", "The stand-in only answers Format=JSON."
        if not form.get("RoleSessionName"):
            return 400, "MissingRoleSessionName", "RoleSessionName is mandatory for this action."
        if form.get("RoleArn") != self.role_arn:
            return 404, "EntityNotExist.Role", "The role does not exist."
        if form.get("OIDCProviderArn") != self.provider_arn:
            return 404, "EntityNotExist.OIDCProvider", "The OIDC provider does not exist."
        if form.get("OIDCToken") != self.oidc_token:
            return 400, "AuthenticationFail.OIDCToken.Invalid", "This JSON Web Token is not valid."
        return None
