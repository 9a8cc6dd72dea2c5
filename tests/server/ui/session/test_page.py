"""The session page agrees with the API, its links work, and texts from Ray are escaped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.server.app import AppConfig
from tests.history.rebuilt import JOB, NODE, OTHER_NODE, WORKER, job, job_life, node, node_life, task, task_id
from tests.server.serving import Answer, Served, served
from tests.server.ui.markup import Element, parsed
from tests.server.ui.written_sessions import SESSION, end_long_ago, failed, raised, ran, write_session
from tests.support.captured import captured, write_archive

BROWSER = {"Accept": "text/html,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}
S = f"/s/default/demo/{captured().session}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("session-page")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo", "rayjob", "nightly"))
    end_long_ago(folder)
    with served(store, folder / "cache") as running:
        running.get(f"{S}/api/version")
        yield running


@pytest.fixture(scope="module")
def page(server: Served) -> Element:
    answer = server.get(f"{S}/_session", BROWSER)
    assert answer.status == 200
    return parsed(answer.body)


def looked_at(server: Served, path: str, session: str = f"/s/default/written/{SESSION}") -> Answer:
    """The answer to a browser once the session is open."""
    assert server.get(f"{session}/api/version").status == 200
    return server.get(f"{session}/{path}", BROWSER)


def section(page: Element, heading: str) -> Element:
    return page.one("section", where=lambda found: found.attributes.get("aria-labelledby") == heading)


def test_the_page_has_no_inline_scripts_or_styles(server: Served, page: Element) -> None:
    answer = server.get(f"{S}/_session", BROWSER)
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert all(script.attributes.get("src") for script in page.all("script"))
    assert not page.all("style")
    assert not [found for found in page.walk() if "style" in found.attributes]
    assert not [name for found in page.walk() for name in found.attributes if name.startswith("on")]


def test_facts_are_those_of_the_api(server: Served, page: Element) -> None:
    facts = {item.one("dt").text: item.one("dd").text for item in page.one("dl", "facts").all("div")}
    assert facts["Jobs"] == "7 1 failed"
    assert facts["Task attempts"] == "256 20 failed"
    assert facts["Actors"] == "27 3 died unexpectedly"
    for table, number in (("tasks", 256), ("actors", 27)):
        listed = server.get(f"{S}/api/v0/{table}?limit=1&exclude_internal=1").json["data"]["result"]
        assert listed["total"] == number
    assert "Not counted: 93 attempts and 9 actors of Ray itself, such as job supervisors." in section(page, "h-f").text
    assert facts["CPU / GPU"] == "6 / 0"
    assert facts["Duration"] == "2 min 46 s", "until the last line in the log of the GCS"
    assert "Ray 2.60.0" in page.one("h1").text or any(tag.text == "Ray 2.60.0" for tag in page.all("span", "tag"))


def test_jobs_have_their_status_and_the_reason_of_their_end(page: Element) -> None:
    rows = section(page, "h-j").all("tr")[1:]
    assert len(rows) == 7
    assert "Failed fx-fail" in rows[0].text
    assert "exit code 1: ValueError: x" in rows[0].text
    unknown = [row.text for row in rows if "fx-long" in row.text]
    assert "Interrupted" in unknown[0], "what was running at the end of its cluster is not known to have failed"
    assert "was running when the cluster ended" in unknown[0]


def test_the_first_group_is_open_and_its_decisive_line_marked(page: Element) -> None:
    first, *others = section(page, "h-f").all("details", "fail")
    assert "open" in first.attributes
    assert not [other for other in others if "open" in other.attributes]
    raiser = next(other for other in others if "raiser" in other.text)
    assert raiser.one("mark").text == "ValueError: deliberate 你好 failure"


def test_every_link_of_the_page_leads_somewhere(server: Served, page: Element) -> None:
    addresses = {link.attributes["href"] for link in page.all("a") if link.attributes.get("href")}
    ours = {urlsplit(urljoin(f"{server.url}{S}/_session", address)) for address in addresses}
    paths = {f"{url.path}?{url.query}" if url.query else url.path for url in ours if "select_cluster" not in url.path}
    assert len(paths) > 30
    statuses = {path: server.get(path, method="HEAD").status for path in paths}
    assert {path: status for path, status in statuses.items() if status != 200} == {}


def test_the_failures_of_a_group_are_found_in_the_api(server: Served, page: Element) -> None:
    for group in section(page, "h-f").all("details", "fail"):
        link = group.one("a", where=lambda found: "JSON" in found.text).attributes["href"]
        found = [row for row in server.get(link).rows if "The cluster was terminated" not in row["error_message"]]
        assert len(found) == int(group.one("div", "count").text), group.one("h3").text


def test_a_suggested_log_is_a_page(server: Served, page: Element) -> None:
    links = {link.text: link.attributes["href"] for link in section(page, "h-l").all("a", "mono")}
    answer = server.get(links["job-driver-fx-fail.log"])
    assert answer.headers["content-type"].startswith("text/html")
    assert b"ValueError: x" in answer.body


def test_commands_name_the_session_by_its_own_address(server: Served, page: Element) -> None:
    commands = [code.text for code in section(page, "h-u").all("code")]
    assert f"ray list tasks --address {server.url}{S} --filter state=FAILED" in commands


def test_the_timeline_counts_the_same_failures_as_the_diagnosis(page: Element) -> None:
    titles = [title.text for title in page.one("svg", "plot").all("title")]
    counts = [
        [int(word.replace(",", "")) for word in title.split(": ")[1].split() if word[0].isdigit()] for title in titles
    ]
    assert sum(failed for failed, _, _ in counts) == 20
    assert sum(finished for _, finished, _ in counts) == 232, "without the 93 attempts of Ray itself"


def test_links_contain_the_base_path(tmp_path: Path) -> None:
    store = write_session(tmp_path, ran(1, "fine", 0, 5))
    with served(store, tmp_path / "cache", AppConfig(base_path="/ray/history")) as server:
        body = looked_at(server, "_session", "/ray/history/s/default/written/latest").body
        answer = looked_at(server, "", "/ray/history/s/default/written/latest")
    links = [link.attributes["href"] for link in parsed(body).all("a")]
    assert all(link.startswith(("/ray/history/", "#", "http://127.0.0.1")) for link in links)
    assert b'src="/ray/history/_pages/hbar.' in answer.body


HOSTILE = "<script>alert(1)</script>'\"&<img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("hostile")
    store = write_session(
        folder,
        [
            node(NODE, nodeName=HOSTILE),
            node_life("ALIVE", 0),
            node_life("DEAD", 9, deathInfo={"reason": "UNEXPECTED_TERMINATION", "reasonMessage": HOSTILE}),
            job(JOB, 0, HOSTILE, entrypoint=HOSTILE),
            job_life("CREATED", 0),
            *failed(1, HOSTILE, 1, 2, raised("f", f"ValueError: {HOSTILE}\u202e\x1b[31m")),
        ],
        logs={(NODE, f"worker-{WORKER}-{JOB}-7.err"): b"text", (NODE, "gcs_server.err"): b"more"},
        endpoints={"restful__api__jobs": [{"type": "SUBMISSION", "submission_id": HOSTILE, "status": "FAILED",
                                           "entrypoint": HOSTILE, "message": HOSTILE, "start_time": 1_794_772_801_000,
                                           "end_time": 1_794_772_805_000, "job_id": JOB}]},
    )  # fmt: skip
    with served(store, folder / "cache") as running:
        yield running


@pytest.mark.parametrize("path", ["_session", ""])
def test_names_and_texts_from_ray_are_never_markup(hostile: Served, path: str) -> None:
    answer = looked_at(hostile, path)
    assert answer.status == 200
    assert b"<script>alert" not in answer.body
    assert b"<img" not in answer.body
    assert "\u202e" not in answer.body.decode()
    assert b"\x1b" not in answer.body
    if path:
        assert HOSTILE in parsed(answer.body).text


def test_completeness_is_shown_with_its_reasons(tmp_path: Path) -> None:
    events = {"received": 1000, "stored": 990, "quarantined": 0, "dropped_by_ray": 10}
    ledger = {
        "node": NODE,
        "events": events,
        "logs": {"bytes_lost": 2_000_000},
        "ended": None,
        "alive_until": 1_700_000_000,
    }
    store = write_session(tmp_path, [node(), node_life("ALIVE", 0), *ran(1, "fine", 0, 5)], ledgers={NODE: ledger})
    with served(store, tmp_path / "cache") as server:
        page = parsed(looked_at(server, "_session").body)
        bar = parsed(looked_at(server, "").body).one("header", "hbar")
    card = section(page, "h-c").text
    assert "Incomplete" in card
    assert "98% of 1,010 events" in card
    assert "10 events were dropped by Ray itself" in card
    assert "10 events that collectors received were never stored" in card
    assert "did not end in order" in card
    assert "2.0 MB of log files are lost" in card
    assert "Lost" in page.one("h1").text + page.all("span", "pill")[0].text
    assert "98%" in bar.text


def test_a_session_whose_head_shut_down_in_order_is_not_lost(tmp_path: Path) -> None:
    events = {"received": 12, "duplicated": 2, "stored": 9, "quarantined": 1, "dropped_by_ray": 0}
    ledger = {"events": events, "alive_until": 1_700_000_000}
    ledgers = {NODE: ledger | {"role": "head", "ended": "graceful"}, OTHER_NODE: ledger | {"role": "worker"}}
    nodes = [node(), node_life("ALIVE", 0), node(OTHER_NODE, nodeName="gpu-3"), node_life("ALIVE", 0, OTHER_NODE)]
    store = write_session(tmp_path, [*nodes, *ran(1, "fine", 0, 5)], ledgers=ledgers)
    with served(store, tmp_path / "cache") as server:
        page = parsed(looked_at(server, "_session").body)
    assert page.all("span", "pill")[0].text.startswith("Ended")
    card = section(page, "h-c").text
    assert "20 events read" in card
    assert "Node gpu-3 did not end in order" in card
    assert "2 events could not be understood" in card


@pytest.mark.parametrize("more", ["nothing", "logs", "answers", "a task without times"])
def test_a_nearly_empty_session_has_all_pages(tmp_path: Path, more: str) -> None:
    store = write_session(
        tmp_path,
        [task(task_id(1))] if more == "a task without times" else [],
        logs={(NODE, "raylet.out"): b"text"} if more == "logs" else None,
        endpoints={"restful__api__jobs": [[], 3, {"type": "SUBMISSION"}]} if more == "answers" else None,
    )
    with served(store, tmp_path / "cache") as server:
        statuses = {path: looked_at(server, path).status for path in ("_session", "", "_digest", "_download")}
    assert statuses == dict.fromkeys(statuses, 200)
