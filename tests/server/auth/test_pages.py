"""Pages with authentication: the user's name, signing out, and errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import Store, open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.kube import Kubernetes, from_kubeconfig
from ray_history.server.auth.attempts import Turns
from ray_history.server.auth.backends import FileTokens, NoAuth, ProxyHeader
from ray_history.server.auth.credentials import TrustedPeers
from ray_history.server.auth.kubernetes import KubernetesTokens, parse_access
from ray_history.server.auth.rules import RulesFile
from tests.server.auth.people import ADA, BOB, RULES, SESSION, Asking, asking, bearer, rules_file
from tests.server.ui.markup import Element, parsed
from tests.support.captured import write_archive
from tests.support.kube_stand_in import KubeStandIn, Person, Rule

BROWSER = {"Accept": "text/html,application/xhtml+xml", "Sec-Fetch-Mode": "navigate"}
SUMMARY = f"/s/default/demo/{SESSION}/_session"
LOCKED = f"/s/locked/demo/{SESSION}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, store: Store) -> Iterator[Asking]:
    folder = tmp_path_factory.mktemp("pages")
    with asking(folder, tokens(folder), store) as running:
        assert running.get(f"/s/default/demo/{SESSION}/api/version", bearer(ADA)).status_code == 200
        assert running.get(f"{LOCKED}/api/version", bearer(BOB)).status_code == 200
        yield running


def tokens(folder: Path) -> FileTokens:
    rules = [*RULES, {"name": "<b>eve</b>", "token": "eve-has-a-third-long-token", "namespaces": ["*"]}]
    return FileTokens(RulesFile(rules_file(folder, rules)), TrustedPeers.parse("127.0.0.1"))


def top(answer: requests.Response) -> Element:
    return parsed(answer.content).one("header", "top")


@pytest.mark.parametrize("path", ["/", "/select_cluster", SUMMARY, "/s/default/nothing/latest/"])
def test_pages_show_the_user_and_a_button_to_sign_out(server: Asking, path: str) -> None:
    for token, name in ((ADA, "ada"), ("eve-has-a-third-long-token", "<b>eve</b>")):
        bar = top(server.get(path, {**BROWSER, **bearer(token)}))
        assert bar.one("span", "user").text == name
        (form,) = [form for form in bar.all("form") if form.attributes.get("method") == "post"]
        assert form.attributes["action"] == "/logout"
        assert form.one("button").text == f"Sign out {name}"


def test_without_auth_pages_show_no_user(tmp_path: Path, store: Store) -> None:
    with asking(tmp_path, NoAuth(), store) as server:
        bar = top(server.get("/", BROWSER))
    assert not bar.all("span", "user")
    assert [form.attributes["role"] for form in bar.all("form")] == ["search"]


def test_a_user_of_a_proxy_is_shown_without_a_button_to_sign_out(tmp_path: Path, store: Store) -> None:
    peers = TrustedPeers.parse("127.0.0.1")
    mode = ProxyHeader(RulesFile(rules_file(tmp_path)), peers, "X-Forwarded-User", "X-Forwarded-Groups")
    with asking(tmp_path, mode, store) as server:
        bar = top(server.get("/", {**BROWSER, "X-Forwarded-User": "ada"}))
        unknown = server.get("/", BROWSER)
    assert bar.one("span", "user").text == "ada"
    assert [form.attributes["role"] for form in bar.all("form")] == ["search"]
    assert unknown.status_code == 401
    assert parsed(unknown.content).one("h1").text == "Sign in first"


def test_the_sign_in_page_says_which_token_it_expects(server: Asking, api: KubeStandIn, tmp_path: Path) -> None:
    page = parsed(server.get(f"/login?next={SUMMARY}", BROWSER).content)
    assert "that you were given for this server" in page.one("form").text
    assert not page.all("div", "code")
    assert page.all("p", "meta")[-1].text.endswith(f"After signing in you return to {SUMMARY}")
    (tmp_path / "kubeconfig").write_text(api.kubeconfig())
    kubernetes = Kubernetes(from_kubeconfig([tmp_path / "kubeconfig"]))
    access = parse_access("list rayclusters.ray.io")
    mode = KubernetesTokens(kubernetes, TrustedPeers(), access, audiences=("ray-history",))
    with asking(tmp_path, mode, open_store(DirectorySettings(tmp_path / "none"))) as asked:
        page = parsed(asked.get("/login", BROWSER).content)
    command = page.one("div", "code").one("code").text
    assert command == "kubectl create token NAME --namespace NAMESPACE --duration 12h --audience ray-history"
    assert "may list rayclusters.ray.io" in page.all("p", "meta")[-1].text
    assert "return to" not in page.text


# A hidden session and a missing one.


def told(answer: requests.Response) -> tuple[int, dict[str, str], str]:
    """The whole answer except for times and the request id."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    number = headers.pop("x-request-id")
    headers.pop("date")
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "NOW", answer.text.replace(number, "NUMBER"))
    headers.pop("content-length", None)
    return answer.status_code, headers, text


@pytest.mark.parametrize("path", [LOCKED, "/s/locked/demo/latest", "/s/locked/demo/live", "/s/locked/demi/latest"])
@pytest.mark.parametrize("rest", ["/", "/_session", "/logs/x", "/api/v0/tasks", "/static/x.js"])
def test_the_page_of_a_hidden_session_is_that_of_a_missing_one(
    server: Asking, poor: Asking, path: str, rest: str
) -> None:
    """The same address for a session hidden from Ada, and for one that does not exist."""
    headers = {**BROWSER, **bearer(ADA)}
    hidden, missing = server.get(path + rest, headers), poor.get(path + rest, headers)
    assert hidden.status_code == 404
    store = re.compile(r'<span class="meta hide clip" title="Archive">.*?</span>')
    assert re.sub(store, "", told(hidden)[2]) == re.sub(store, "", told(missing)[2])
    assert told(hidden)[:2] == told(missing)[:2]
    assert "<h1>No such session</h1>" in hidden.text


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """The same for Ada, without anything of other users."""
    folder = tmp_path_factory.mktemp("poor")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    with asking(folder, tokens(folder), store) as running:
        assert running.get(f"/s/default/demo/{SESSION}/api/version", bearer(ADA)).status_code == 200
        yield running


def test_suggestions_contain_only_visible_sessions(server: Asking) -> None:
    for token, meant, guesses in (
        (ADA, "defaults/demo", ["default/demo"]),
        (BOB, "defaults/demo", []),
        (BOB, "locke/demo", ["locked/demo"]),
        (ADA, "locke/demo", []),
    ):
        page = parsed(server.get(f"/s/{meant}/latest/", {**BROWSER, **bearer(token)}).content)
        assert [link.text for link in page.one("ol", "steps-next").all("a")] == guesses


# When access cannot be checked.


@pytest.fixture
def api() -> Iterator[KubeStandIn]:
    people = {"admin-token": Person("admin"), "ada-token": Person("ada")}
    rules = [Rule("admin", "*", "*"), Rule("ada", "get", "rayclusters", "default")]
    with KubeStandIn(people=people, rules=rules).running() as server:
        yield server


def test_error_pages_before_authentication_contain_no_names(api: KubeStandIn, tmp_path: Path, store: Store) -> None:
    (tmp_path / "kubeconfig").write_text(api.kubeconfig())
    kubernetes = Kubernetes(from_kubeconfig([tmp_path / "kubeconfig"]), timeout=10)
    mode = KubernetesTokens(kubernetes, TrustedPeers(), parse_access("get rayclusters.ray.io"))
    with asking(tmp_path, mode, store) as server:
        with api.down():
            page = silent(server.get("/", {**BROWSER, **bearer("ada-token")}), 503, "Temporarily unavailable", store)
            assert "Kubernetes API server cannot be reached" in page.one("p", "wrap-anywhere").text
            assert server.get("/", bearer("ada-token")).json()["result"] is False
            form = parsed(server.post("/login", BROWSER, token="ada-token").content)
            assert form.one("section", "note").one("h2").text == "Signing in is not possible at the moment"
        for number in range(100):
            assert server.get("/clusters", bearer(f"wrong-{number}")).status_code == 403
        mode._turns = Turns(most=0, waiting=0)
        page = silent(server.get("/", {**BROWSER, **bearer("another")}), 429, "Too many attempts", store)
        assert page.one("meta", where=lambda e: e.attributes.get("http-equiv") == "refresh")
        assert server.get("/", bearer("another")).json()["result"] is False


def test_without_access_checks_there_are_no_suggestions(api: KubeStandIn, tmp_path: Path, store: Store) -> None:
    (tmp_path / "kubeconfig").write_text(api.kubeconfig())
    kubernetes = Kubernetes(from_kubeconfig([tmp_path / "kubeconfig"]), timeout=10)
    mode = KubernetesTokens(kubernetes, TrustedPeers(), parse_access("get rayclusters.ray.io"), clock=lambda: 0.0)
    with asking(tmp_path, mode, store) as server:
        assert server.get("/clusters", bearer("admin-token")).status_code == 200, "the archive was listed"
        assert server.get("/s/locke/demo/latest/", bearer("ada-token")).status_code == 404
        with api.down():
            answer = server.get("/s/locke/demo/latest/", {**BROWSER, **bearer("ada-token")})
    assert answer.status_code == 404
    assert not parsed(answer.content).one("ol", "steps-next").all("a")


def silent(answer: requests.Response, status: int, title: str, store: Store) -> Element:
    assert answer.status_code == status, answer.text
    assert answer.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert store.url not in answer.text, "where the archive is concerns those who are let in"
    page = parsed(answer.content)
    assert page.one("h1").text == title
    return page
