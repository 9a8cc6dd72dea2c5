"""The page of a log: what it shows without scripts, and what a browser adds to it."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from ray_history.server.logs.windows import WINDOW
from tests.history.rebuilt import NODE, WORKER
from tests.server.serving import Served, served
from tests.server.ui.written_sessions import SESSION, ran, write_session
from tests.support.axe import Axe
from tests.support.chromium import Chromium, Page

pytestmark = pytest.mark.xdist_group("browser")

S = f"/s/default/written/{SESSION}"
LONG = "long.log"
LINES = 20_000
OUT, ERR = f"worker-{WORKER}-01000000-77.out", f"worker-{WORKER}-01000000-77.err"
LOGS = {
    (NODE, LONG): b"".join(b"step %05d of the long log, nothing unusual\n" % number for number in range(1, LINES + 1)),
    (NODE, OUT): b":job_id:01000000\nhello <b>world</b>\n",
    (NODE, ERR): b":job_id:01000000\n\x1b[33mslow\x1b[0m\nERROR it broke\n",
    (NODE, "empty.log"): b"",
    (NODE, "runtime_env_agent.log"): b"'env_vars': {'TOKEN': 'hunter2'}\n",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("log-page")
    store = write_session(folder, ran(1, "work", 1_794_787_200, 1_794_787_201), logs=LOGS)
    with served(store, folder / "cache") as running:
        yield running


def address(name: str, **more: object) -> str:
    return f"{S}/_log?" + urlencode({"node_id": NODE, "filename": name, **more})


def html(server: Served, name: str, **more: object) -> str:
    answer = server.get(address(name, **more))
    assert answer.status == 200
    return answer.body.decode()


def test_the_end_of_a_long_log_is_shown_with_its_line_numbers(server: Served) -> None:
    page = html(server, LONG)
    assert f'id="L{LINES}"' in page
    assert 'id="L1"' not in page
    assert "Earlier lines" in page
    assert len(page) < 4 * WINDOW


def test_any_place_can_be_addressed(server: Served) -> None:
    assert 'id="L10000"' in html(server, LONG, line=10_000)
    assert 'id="L1"' in html(server, LONG, **{"from": 0})
    assert 'id="L1"' in html(server, LONG, before=1000)
    assert server.get(address(LONG, line=5, before=1000)).status == 400
    assert server.get(address("no.log")).status == 404


def test_lines_are_text(server: Served) -> None:
    page = html(server, OUT)
    assert "hello &lt;b&gt;world&lt;/b&gt;" in page
    assert '<div class="ln  who"' in page


def test_both_streams_of_a_worker(server: Served) -> None:
    page = html(server, OUT, side=1)
    assert page.index("hello") < page.index("it broke")
    assert '<span class="t-yellow">slow</span>' in page
    assert "1 line with errors" in page


def test_an_empty_log_says_so(server: Served) -> None:
    assert "0 bytes: nothing was printed" in html(server, "empty.log")


def test_secrets_are_hidden_and_not_found(server: Served) -> None:
    assert "hunter2" not in html(server, "runtime_env_agent.log")
    found = server.get(
        f"{S}/_log/search?" + urlencode({"node_id": NODE, "filename": "runtime_env_agent.log", "q": "hunter2"})
    )
    assert found.json == {"matches": [], "next": None, "searched": [0, len(LOGS[NODE, "runtime_env_agent.log"])]}


@pytest.mark.parametrize("text", ["step 0123", "STEP 0123", "of the long", "nowhere"])
def test_a_search_finds_what_grep_finds(server: Served, text: str) -> None:
    lines = LOGS[NODE, LONG].decode().splitlines()
    expected = [number for number, line in enumerate(lines, 1) if text.lower() in line]
    found, start = [], 0
    while start is not None:
        query = urlencode({"node_id": NODE, "filename": LONG, "q": text, "from": start})
        answer = server.get(f"{S}/_log/search?{query}").json
        found += [match["line"] for match in answer["matches"]]
        start = answer["next"]
    assert found == expected


def test_a_search_needs_a_text(server: Served) -> None:
    answer = server.get(f"{S}/_log/search?" + urlencode({"node_id": NODE, "filename": LONG}))
    assert answer.status == 400
    assert "q" in answer.json["msg"]


@pytest.fixture
def page(chromium: Chromium) -> Iterator[Page]:
    """A tab that must end without errors."""
    with chromium.page() as page:
        yield page
        page.value("1")  # receives the last messages of the browser
        assert page.complaints == []


def test_scrolling_adds_lines(page: Page, server: Served) -> None:
    page.open(f"{server.url}{address(LONG)}")
    page.wait("document.querySelectorAll('.part').length >= 1")
    first = "+document.querySelector('.ln a').textContent"
    before = page.value(first)
    page.value("document.querySelector('.log').scrollTop = 0")
    page.wait(f"{first} < {before}")


def test_an_address_of_lines_marks_them(page: Page, server: Served) -> None:
    page.open(f"{server.url}{address(LONG)}#L500-502")
    page.wait("document.querySelectorAll('.ln.chosen').length === 3")
    assert page.value("document.querySelector('.ln.chosen code').textContent").startswith("step 00500")


def test_find_goes_to_the_lines_of_the_whole_file(page: Page, server: Served) -> None:
    page.open(f"{server.url}{address(LONG)}")
    page.wait("!document.querySelector('[name=find]').disabled")
    page.click("[name=find]")
    page.type("step 00042")
    page.press("Enter")
    page.wait("document.querySelector('[data-found]').textContent === '1 of 1, line 42'")
    assert page.value("document.querySelector('.ln.hit a').textContent") == "42"


@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_has_no_serious_accessibility_problems(axe: Axe, page: Page, server: Served, width: int) -> None:
    page.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    page.open(f"{server.url}{address(ERR, side=1)}")
    page.wait("document.querySelector('.ln')")
    assert axe.grave_findings(page) == []
    assert page.value("document.documentElement.scrollWidth <= innerWidth")
