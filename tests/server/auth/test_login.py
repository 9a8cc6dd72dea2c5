"""Signing in with a browser: the page, the dashboard's own dialog, the cookie, and the redirect back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from ray_history.archive.stores import Store
from ray_history.server.auth.backends import FileTokens, NoAuth
from ray_history.server.auth.credentials import COOKIE, TrustedPeers
from ray_history.server.auth.rules import RulesFile
from tests.server.auth.people import ADA, SESSION, WRONG, Asking, asking, bearer, rules_file
from tests.server.ui.markup import parsed

S = f"/s/default/demo/{SESSION}"
BROWSER = {"Accept": "text/html,application/xhtml+xml"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Iterator[Asking]:
    folder = tmp_path_factory.mktemp("login")
    with asking(folder, FileTokens(RulesFile(rules_file(folder)), TrustedPeers()), store) as running:
        yield running


def signed_in(server: Asking) -> dict[str, str]:
    answer = server.post("/login", token=ADA)
    assert answer.status_code == 303, answer.text
    return {"Cookie": answer.headers["set-cookie"].split(";")[0]}


def test_a_browser_is_redirected_to_the_sign_in_page_and_back(server: Asking) -> None:
    wanted = f"{S}/?dashboard=2.60.0"
    away = server.get(wanted, BROWSER)
    assert away.status_code == 303
    assert unquote(away.headers["location"]) == f"/login?next={wanted}"
    page = server.get(away.headers["location"], BROWSER)
    assert page.status_code == 200
    after = re.search(r'name="next" value="([^"]*)"', page.text)
    assert after is not None
    back = server.post("/login", token=ADA, next=after[1])
    assert back.status_code == 303
    assert back.headers["location"] == wanted
    cookie = {"Cookie": back.headers["set-cookie"].split(";")[0]}
    assert server.get(f"{S}/api/v0/nodes", cookie).status_code == 200
    assert server.get(f"/s/locked/demo/{SESSION}/api/v0/nodes", cookie).status_code == 404


def test_programs_are_not_redirected(server: Asking) -> None:
    answer = server.get(f"{S}/", {"Accept": "*/*"})
    assert answer.status_code == 401
    assert answer.json()["result"] is False
    assert "RAY_AUTH_TOKEN" in answer.json()["msg"]


def test_the_page_loads_nothing_from_other_sites_and_has_nothing_inline(server: Asking) -> None:
    answer = server.get("/login", BROWSER)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy, "nobody lays something over the form"
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    page = parsed(answer.content)
    assert [e for e in page.all() if "style" in e.attributes or any(a.startswith("on") for a in e.attributes)] == []
    assert [script.text for script in page.all("script")] == [""]
    files = [e.attributes.get("src") or e.attributes["href"] for e in (*page.all("script"), *page.all("link"))]
    assert all(server.get(file).status_code == 200 for file in files), "without signing in"


def test_the_cookie_is_hidden_from_scripts_and_other_sites_and_expires(server: Asking) -> None:
    cookie = server.post("/login", token=ADA).headers["set-cookie"]
    flags = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"httponly", "samesite=lax", "path=/", "max-age=43200"} <= flags
    assert "secure" not in flags
    for headers in ({"X-Forwarded-Proto": "https"},):
        over_tls = server.post("/login", headers, token=ADA).headers["set-cookie"]
        assert "secure" in over_tls.lower()


def test_the_cookie_is_secure_when_the_server_speaks_tls(tmp_path: Path, store: Store) -> None:
    mode = FileTokens(RulesFile(rules_file(tmp_path)), TrustedPeers())
    with asking(tmp_path, mode, store, secure_cookies=True) as server:
        assert "secure" in server.post("/login", token=ADA).headers["set-cookie"].lower()


@pytest.mark.parametrize(
    "after",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "\\\\evil.example",
        "/%5c%5cevil.example".replace("%5c", "\\"),
        "///evil.example",
        "javascript:alert(1)",
        "/a\r\nSet-Cookie: x=y",
        "/a\tb",
        " //evil.example",
        "evil.example",
        "",
        "/" + "x" * 5000,
        "/ä",
    ],
)
def test_redirects_stay_on_this_server(server: Asking, after: str) -> None:
    answer = server.post("/login", token=ADA, next=after)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    page = server.get(f"/login?next={quote(after)}", BROWSER)
    assert 'name="next" value="/"' in page.text


def test_the_address_is_escaped_on_the_page(server: Asking) -> None:
    page = server.get("/login?next=" + quote('/"><script>alert(1)</script>'), BROWSER)
    assert "<script>" not in page.text


@pytest.mark.parametrize(
    ("token", "status"), [(WRONG, 403), ("", 401), ("x" * 4000, 400), ("ä" * 20, 403), ("a b", 403)]
)
def test_a_wrong_token_is_reported_on_the_page_and_sets_no_cookie(
    tmp_path: Path, store: Store, token: str, status: int
) -> None:
    mode = FileTokens(RulesFile(rules_file(tmp_path)), TrustedPeers())
    with asking(tmp_path, mode, store) as server:
        answer = server.post("/login", token=token, next=f"{S}/")
    assert answer.status_code == status
    assert 'role="alert"' in answer.text
    assert "set-cookie" not in answer.headers
    assert f'value="{S}/"' in answer.text, "where one wanted to go is not forgotten"
    assert not token or token not in answer.text


def test_other_sites_cannot_sign_users_in_or_out(server: Asking) -> None:
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        for path in ("/login", "/logout"):
            answer = server.post(path, headers, token=ADA)
            assert answer.status_code == 403
            assert "set-cookie" not in answer.headers
    same = {"Origin": server.server.url, "Sec-Fetch-Site": "same-origin"}
    assert server.post("/login", same, token=ADA).status_code == 303
    behind = {"Origin": "https://history.example", "X-Forwarded-Host": "history.example"}
    assert server.post("/login", behind, token=ADA).status_code == 303


def test_signing_out_removes_the_cookie(server: Asking) -> None:
    page = server.get("/login", {**BROWSER, **signed_in(server)})
    assert parsed(page.content).one("p", "dim").text == "You are signed in as ada ."
    assert 'action="/logout"' in page.text
    answer = server.post("/logout")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login"
    assert "max-age=0" in answer.headers["set-cookie"].lower()
    assert "set-cookie" not in server.get("/logout", signed_in(server)).headers, "no link signs anybody out"


def test_a_large_form_is_not_read(server: Asking) -> None:
    assert server.post("/login", token="x" * 100_000).status_code == 413


def test_malformed_forms_are_refused(server: Asking) -> None:
    assert server.post("/login", **{f"field{number}": "1" for number in range(30)}).status_code == 400
    for origin in ("http://[", "[", "://", ""):
        assert server.post("/login", {"Origin": origin}, token=ADA).status_code == 403, origin


def test_the_dashboards_own_dialog_signs_in(server: Asking) -> None:
    for below in ("", S, "/s/absent/demo/latest"):
        assert server.get(f"{below}/api/authentication_mode").json() == {"authentication_mode": "token"}
        answer = server.post(f"{below}/api/authenticate", bearer(ADA))
        assert answer.json() == {"status": "authenticated", "message": "Token is valid"}
        cookie = {"Cookie": answer.headers["set-cookie"].split(";")[0]}
        assert cookie["Cookie"].startswith(COOKIE)
        assert server.get(f"{S}/api/v0/nodes", cookie).status_code == 200


def test_the_dialog_gets_rays_answer_to_a_wrong_token(server: Asking) -> None:
    assert server.post(f"{S}/api/authenticate", bearer(WRONG)).status_code == 403
    missing = server.post(f"{S}/api/authenticate", {"Cookie": f"{COOKIE}={ADA}"})
    assert missing.status_code == 401, "the cookie is no token to sign in with"
    assert "set-cookie" not in server.get(f"{S}/api/authenticate", bearer(ADA)).headers


def test_without_tokens_sign_in_is_disabled(tmp_path: Path, store: Store) -> None:
    with asking(tmp_path, NoAuth(), store) as server:
        assert server.get(f"{S}/api/authentication_mode").json() == {"authentication_mode": "disabled"}
        assert server.post(f"{S}/api/authenticate", bearer(ADA)).status_code == 401
        assert server.get("/login", BROWSER).headers["location"] == "/"
        left_open = server.post("/login", BROWSER, token=ADA, next=f"{S}/")
        assert (left_open.status_code, left_open.headers["location"]) == (303, f"{S}/")
        assert "set-cookie" not in left_open.headers
        assert server.get(f"{S}/", BROWSER).status_code == 200


def test_after_too_many_failures_a_peer_has_to_wait(tmp_path: Path, store: Store) -> None:
    mode = FileTokens(RulesFile(rules_file(tmp_path)), TrustedPeers.parse("127.0.0.1"))
    with asking(tmp_path, mode, store) as server:
        statuses = [server.post("/login", token=WRONG).status_code for _ in range(11)]
        assert statuses == [403] * 10 + [429]
        assert server.post("/login", token=ADA).status_code == 303, "others may have the same address"
        assert server.post(f"{S}/api/authenticate", bearer(ADA)).status_code == 200
        assert server.post("/login", token=WRONG).status_code == 429
        assert server.get(f"{S}/api/v0/nodes", bearer(ADA)).status_code == 200, "who is signed in goes on"
        other = {"X-Forwarded-For": "192.0.2.7"}
        assert server.post("/login", other, token=WRONG).status_code == 403, "another peer is not held up"


def test_everything_works_below_a_base_path(tmp_path: Path, store: Store) -> None:
    mode = FileTokens(RulesFile(rules_file(tmp_path)), TrustedPeers())
    with asking(tmp_path, mode, store, base_path="/history") as server:
        away = server.get(f"/history{S}/", BROWSER)
        assert away.headers["location"] == f"/history/login?next=/history{S}/"
        page = server.get(away.headers["location"], BROWSER)
        assert 'action="/history/login"' in page.text
        assert server.get("/history/livez").status_code == 200
        assert server.get(f"/history{S}/api/v0/nodes").status_code == 401
        assert server.get(f"{S}/api/v0/nodes").status_code == 401
        assert server.get("/history/api/authentication_mode").status_code == 200
        back = server.post("/history/login", token=ADA, next="/elsewhere/on/this/host")
        assert back.headers["location"] == "/history/"
        assert "Path=/history;" in back.headers["set-cookie"]
        assert "Path=/history;" in server.post("/history/logout").headers["set-cookie"]
