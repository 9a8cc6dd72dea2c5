"""A real browser for the tests: Debian's Chromium, driven over its own debugging protocol.

`python -m tests.support.chromium install` installs it where that is possible: as root, on Debian and its relatives.

One `Chromium` is one browser process; `page()` opens a tab with a size of its own. A tab collects the messages
of the console and failed requests, so that a test can assert that there are none.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from .processes import PartUnavailable, Process, free_port, port_is_open

_QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-allow-origins=*",
)
_KEYS = {"Enter": "\r", "Escape": "", "Backspace": "", "Tab": ""}


def program() -> str | None:
    """The path of the browser that is installed on this machine."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def install() -> None:
    """Install the browser, or print how to where that is not possible."""
    if program():
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.stderr.write("Tests in a browser are skipped: there is no Chromium; sudo apt-get install chromium\n")
        return
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "--quiet=2", "--option=Acquire::Retries=3"]
    subprocess.run(
        [*apt, "update"], env=quiet, stdout=subprocess.DEVNULL, check=False
    )  # older package lists may be enough
    wanted = ["install", "--yes", "--no-install-recommends", "chromium", "fonts-dejavu-core"]
    subprocess.run([*apt, *wanted], env=quiet, stdout=subprocess.DEVNULL, check=True)


class Chromium(Process):
    """A browser process."""

    def __init__(self, folder: Path) -> None:
        found = program()
        if found is None:
            raise PartUnavailable("Chromium is not installed; apt-get install chromium")
        self.port = free_port()
        super().__init__(
            [
                found,
                *_QUIET,
                f"--user-data-dir={folder / 'profile'}",
                f"--remote-debugging-port={self.port}",
                "about:blank",
            ],
            log=folder / "chromium.log",
            ready=lambda: port_is_open(self.port),
            start_seconds=60,
        )

    @contextmanager
    def page(self, width: int = 1400, height: int = 1000, beside: Page | None = None) -> Iterator[Page]:
        """A tab with its own cookies and storage, or with those of the tab `beside`, closed at the end of the block."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/json/version", timeout=60) as answer:
            address = json.load(answer)["webSocketDebuggerUrl"]
        with _connected(address) as whole:
            context = beside.context if beside else ""
            context = context or whole.command("Target.createBrowserContext", disposeOnDetach=True)["browserContextId"]
            target = whole.command("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
            with _connected(f"ws://127.0.0.1:{self.port}/devtools/page/{target}") as page:
                page.context = context
                for domain in ("Page", "Runtime", "Log", "Network"):
                    page.command(f"{domain}.enable")
                page.command(
                    "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
                )
                yield page


@contextmanager
def _connected(address: str) -> Iterator[Page]:
    with connect(address, max_size=None, proxy=None) as socket:
        yield Page(socket)


class Navigated(Exception):
    """The page navigated away while an expression was evaluated."""


class Thrown(AssertionError):
    """An expression threw an error in the page."""


class Page:
    """A tab."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.context = ""
        """The id of its cookies and storage."""
        self.complaints: list[str] = []
        """Console warnings and errors, exceptions, and requests that failed or were refused."""

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("id") == self._number:
                if message.get("error", {}).get("message") == "Inspected target navigated or closed":
                    raise Navigated(method)
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._notice(message)

    def _notice(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(params["args"]))
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            case "Network.responseReceived" if params["response"]["status"] >= 400:
                self.complaints.append(f"{params['response']['status']} {params['response']['url']}")
            case "Network.loadingFailed" if not params.get("canceled"):
                self.complaints.append(f"{params['type']}: {params['errorText']}")

    def open(self, url: str) -> None:
        """Navigate to the URL, and wait until it is loaded."""
        self.command("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url.split('#')[0])})")

    def value(self, expression: str) -> Any:
        """Evaluate an expression in the page."""
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise Thrown(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 60) -> None:
        """Wait until an expression is true in the page."""
        deadline = time.monotonic() + seconds
        while not self._holds(condition):
            assert time.monotonic() < deadline, f"{condition} did not come true; {self.complaints}"
            time.sleep(0.05)

    def _holds(self, condition: str) -> bool:
        try:
            return bool(self.value(f"!!({condition})"))
        except (Navigated, Thrown):  # the condition may hold on the next page, or once its element is there
            return False

    def type(self, text: str) -> None:
        """Type text, key by key, into the focused element."""
        for letter in text:
            self.command("Input.dispatchKeyEvent", type="keyDown", text=letter, key=letter)
            self.command("Input.dispatchKeyEvent", type="keyUp", key=letter)

    def press(self, key: str) -> None:
        """Press one key by its name, such as `Enter`."""
        codes = {"Enter": 13, "Escape": 27, "Backspace": 8, "Tab": 9}
        for kind in ("keyDown", "keyUp"):
            text = {"text": _KEYS[key]} if kind == "keyDown" and _KEYS[key] else {}
            self.command("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes[key], **text)

    def click(self, selector: str) -> None:
        """Click the middle of the first element that matches the selector."""
        x, y = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'});"
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        self.drag([(x, y)])

    def drag(self, places: list[tuple[float, float]]) -> None:
        """Press the mouse at the first position, move through the others, release it at the last."""
        for number, (x, y) in enumerate(places):
            if number == 0:
                self._mouse("mousePressed", x, y)
            else:
                self._mouse("mouseMoved", x, y)
        self._mouse("mouseReleased", *places[-1])

    def _mouse(self, kind: str, x: float, y: float) -> None:
        self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def picture(self, file: Path) -> None:
        """Save a screenshot of the viewport."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"]))


if __name__ == "__main__":
    install()
