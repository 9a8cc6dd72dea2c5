"""A server that wants tokens, with one session that a viewer may see, and one that is hidden."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ray_history.server.auth.backends import FileTokens
from ray_history.server.auth.credentials import TrustedPeers
from ray_history.server.auth.rules import RulesFile
from tests.server.auth.people import ADA, BOB, SESSION, WRONG, Asking, archive, asking, bearer, rules_file

VIEWERS: dict[str, str | None] = {"ada": ADA, "bob": BOB, "wrong": WRONG, "nobody": None}
SEEN_BY = {"ada": "default", "bob": "locked"}
"""The namespace that a viewer may see."""
MISSING = "dema"
"""A cluster that does not exist, as long as the name of the one that does."""
_CHANGING = ("x-request-id", "date", "content-length")
_CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
_NOT_RECORDED = (501, 503)
"""Statuses of what the archive does not have, or not yet, which are part of the description."""


@dataclass(frozen=True)
class Answer:
    """An answer, without what is different each time."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return requests.models.complexjson.loads(self.body)

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.json["data"]["result"]["result"]
        return rows


def session_path(namespace: str, cluster: str = "demo") -> str:
    return f"/s/{namespace}/{cluster}/{SESSION}"


@dataclass(frozen=True)
class Place:
    """The server."""

    asking: Asking

    def get(self, path: str, viewer: str, **parameters: Any) -> Answer:
        token = VIEWERS[viewer]
        response = requests.get(
            self.asking.server.url + path,
            params=parameters,
            headers=bearer(token) if token else {},
            timeout=60,
            allow_redirects=False,
        )
        return _answer(response)

    @cached_property
    def schema(self) -> Any:
        response = self.get(f"{session_path('default')}/openapi.json", "ada")
        return schemathesis.openapi.from_dict(response.json)

    def cases(self) -> st.SearchStrategy[Any]:
        """Requests of every route, with valid and invalid parameters."""
        operations = [found.ok() for found in self.schema.get_all_operations()]
        modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        return st.one_of([operation.as_strategy(generation_mode=mode) for operation in operations for mode in modes])

    def send(self, case: Any, namespace: str, cluster: str, viewer: str) -> requests.Response:
        token = VIEWERS[viewer]
        return requests.request(
            **case.as_transport_kwargs(
                base_url=self.asking.server.url + session_path(namespace, cluster),
                headers=bearer(token) if token else {},
            ),
            timeout=60,
            allow_redirects=False,
        )

    def check(self, case: Any, response: requests.Response) -> None:
        """The answer is described: its status, its content type, and its content."""
        if response.status_code in _NOT_RECORDED:
            assert str(response.status_code) in case.operation.responses.status_codes, response.text[:300]
            return
        try:
            case.validate_response(response, checks=_CHECKS)
        except (Failure, FailureGroup) as failure:
            raise AssertionError(f"{response.request.url}: {failure}") from failure


def _answer(response: requests.Response) -> Answer:
    headers = {name.lower(): value for name, value in response.headers.items() if name.lower() not in _CHANGING}
    return Answer(response.status_code, headers, response.content)


def without_name(response: requests.Response) -> Answer:
    """The answer without the name of the cluster, so that a hidden one and a missing one can be compared."""
    answer = _answer(response)
    body = answer.body.replace(f"default/{MISSING}".encode(), b"default/demo").replace(MISSING.encode(), b"demo")
    headers = {name: value.replace(MISSING, "demo") for name, value in answer.headers.items()}
    return Answer(answer.status, headers, body)


@contextmanager
def place(folder: Path) -> Iterator[Place]:
    """The server, until the block ends. Nothing in its archive is followed: all is from long ago."""
    store = archive(folder)
    for file in (folder / "archive").rglob("*"):
        os.utime(file, (1e9, 1e9))
    with asking(folder, FileTokens(RulesFile(rules_file(folder)), TrustedPeers()), store) as server:
        found = Place(server)
        for viewer, namespace in SEEN_BY.items():
            assert found.get(f"{session_path(namespace)}/api/v0/nodes", viewer).status == 200
        yield found
