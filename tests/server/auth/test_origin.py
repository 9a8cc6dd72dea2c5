"""Names by which a server is called, and pages that call it."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_history.archive.stores import Store
from ray_history.server.auth import AuthSettings, allowed_hosts
from ray_history.server.auth.origin import AllowedHosts
from tests.server.auth.people import SESSION
from tests.server.test_process import running

TAIL = f"/s/default/demo/{SESSION}/api/jobs/fx-core/logs/tail"
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Iterator[int]:
    """A server without authentication."""
    flags = ("serve", "--storage", store.url, "--kube", "off", "--allowed-host", "history.example.com,other")
    with running(tmp_path_factory.mktemp("origin"), "ray-history", *flags) as (_, port):
        yield port


def ask(port: int, path: str, **headers: str) -> tuple[int, str, str]:
    """Status, body and location."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=240)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        body = "" if answer.status == 101 else answer.read().decode()
        return answer.status, body, answer.headers.get("location", "")
    finally:
        connection.close()


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:80", "127.9.9.9", "[::1]:8080", "a.localhost."]
)
def test_a_server_without_authentication_answers_to_the_names_of_its_machine(port: int, host: str) -> None:
    assert ask(port, "/clusters", Host=host)[0] == 200


@pytest.mark.parametrize("host", ["history.example.com", "Other:8080"])
def test_it_answers_to_allowed_names(port: int, host: str) -> None:
    assert ask(port, "/clusters", Host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:8080", "192.0.2.1", "[::2]", "a@localhost", "[x"]
)
@pytest.mark.parametrize("accept", ["*/*", "text/html"])
def test_it_refuses_other_names(port: int, host: str, accept: str) -> None:
    for path in ("/", "/clusters", "/livez", f"/s/default/demo/{SESSION}/api/v0/nodes"):
        status, body, _ = ask(port, path, Host=host, Accept=accept)
        assert status == 421
        assert "--allowed-host" in body
    assert ask(port, TAIL, Host=host, **WEBSOCKET)[0] == 421


def test_pages_of_other_sites_open_no_web_socket(port: int) -> None:
    assert ask(port, TAIL, **WEBSOCKET)[0] == 101, "programs name no origin"
    assert ask(port, TAIL, Origin=f"http://127.0.0.1:{port}", **WEBSOCKET)[0] == 101
    assert ask(port, TAIL, Origin="http://evil.example", **WEBSOCKET)[0] == 403
    assert ask(port, TAIL, Origin="null", **WEBSOCKET)[0] == 403
    assert ask(port, TAIL, Sec_Fetch_Site="cross-site", **WEBSOCKET)[0] == 403


def test_redirects_name_no_host(port: int) -> None:
    for headers in ({"Host": "localhost:9"}, {"X_Forwarded_Proto": "https", "X_Forwarded_Host": "evil.example"}):
        status, _, location = ask(port, f"/s/default/demo/{SESSION}?at=1", **headers)
        assert (status, location) == (307, f"/s/default/demo/{SESSION}/?at=1")


def test_below_a_base_path_redirects_name_no_host(tmp_path: Path, store: Store) -> None:
    flags = ("serve", "--storage", store.url, "--kube", "off", "--base-path", "/history")
    with running(tmp_path, "ray-history", *flags) as (_, port):
        assert ask(port, "/history")[::2] == (307, "/history/")
        assert ask(port, "/history/s/a/b/c")[::2] == (307, "/history/s/a/b/c/")
        assert ask(port, "/elsewhere/")[0] == 404


@pytest.mark.parametrize(
    ("auth", "host", "names"),
    [
        (None, "127.0.0.1", frozenset()),
        ("none", "::1", frozenset()),
        ("none", "0.0.0.0", None),  # noqa: S104
        ("token", "127.0.0.1", None),
    ],
)
def test_which_servers_check_their_name(auth: str | None, host: str, names: frozenset[str] | None) -> None:
    assert allowed_hosts(AuthSettings(auth=auth), host) == AllowedHosts(names)


def test_any_name_can_be_allowed() -> None:
    assert AllowedHosts.local("*").allow("evil.example")
    assert AllowedHosts.local("a, B").allow("b")
    assert AllowedHosts.local().allow("")
