"""Takes the screenshots of `docs/images/` from the product itself: `python -m tests.screenshots`.

A real S3 server holds a made-up fleet, the captured session of a real Ray, what is left of it without events, with a
slow head and after a SIGKILL, and a large generated session; the real server shows them in a real browser.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench.generated import generate
from ray_history.archive import layout
from ray_history.archive.event_files import encode_events
from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store
from tests.conftest import s3_variables
from tests.history.rebuilt import NODE
from tests.server.metrics.recorded_sessions import write_dashboards, write_metrics
from tests.server.metrics.training_metrics import training
from tests.server.serving import Served, served
from tests.server.ui.fleets import DAY, Made, session_name, write_made
from tests.server.ui.poor_sessions import KILLED, SESSION, SILENT, SLOW, write_poor_sessions
from tests.server.ui.written_sessions import ran
from tests.support.captured import captured, write_archive
from tests.support.chromium import Chromium, Page
from tests.support.seaweedfs import SeaweedFS

IMAGES = Path(__file__).parents[1] / "docs" / "images"
HOUR = 3600.0
REAL = Cluster("research", "fx-nightly", "rayjob", "fx-nightly")
LARGE = Cluster("ml-prod", "embed-backfill", "rayjob", "embed-backfill")
LARGE_SESSION = "session_2026-11-14_03-00-00_000001_1"
TRAINING = Cluster("ml-prod", "llama-finetune", "rayjob", "llama-finetune")
TRAINING_SESSION = "session_2026-11-17_09-12-40_000001_1"
REAL_PATH = f"/s/{REAL.namespace}/{REAL.name}/{captured().session}"
KNOWN = "document.querySelector('[data-fleet]')?.dataset.again !== '1'"
TEXT = "(document.querySelector('#root')?.innerText ?? '')"

PROGRAMS = (
    # name, namespace, owner, job, how often one starts, failures in percent
    ("etl-hourly", "data", "rayjob", "python mapred.py --hour {n}", 9, 4),
    ("fraud-train", "ml-prod", "rayjob", "python train.py --epochs 40 --seed {n}", 4, 30),
    ("nightly-smoke", "ci", "rayjob", "pytest -q tests/gpu --shard {n}", 4, 20),
    ("notebook", "sandbox", "", "python cell_{n}.py", 3, 12),
    ("embed-backfill", "ml-prod", "rayjob", "python -m embed.backfill --shard {n}/512", 2, 25),
    ("llm-serve", "ml-prod", "rayservice", "serve run llm_app:ingress --name chat-{n}", 1, 10),
)
ERRORS = (
    "Task was killed due to the node running low on memory.",
    "ConnectionError: refused",
    "RpcError: RPC error: Socket closed rpc_code: 14",
)


def fleet(now: float) -> Iterator[Made]:
    """A week of sessions, more by day than by night; four are live, and the long-lived service is one of them."""
    draw = random.Random(3)
    number = 0
    for hour in range(7 * 24):
        started = now - 60 - hour * HOUR
        by_day = 0.5 - 0.5 * math.cos(2 * math.pi * (datetime.fromtimestamp(started, UTC).hour - 2) / 24)
        for _ in range(draw.randint(0, 1 + round(2 * by_day))):
            name, namespace, owner, runs, _, fails = draw.choices(PROGRAMS, [each[4] for each in PROGRAMS])[0]
            failed = draw.randint(1, 400) if draw.randrange(100) < fails else 0
            begun = started - draw.random() * HOUR
            state = "live" if number < 3 else "lost" if number % 40 == 5 else "ended"
            yield _made(name, namespace, owner, runs, begun, number, state, failed, draw.choice(ERRORS))
            number += 1
    yield _made(*PROGRAMS[-1][:4], now - 6.4 * DAY, number, "live", 7, ERRORS[1])


def _made(
    name: str, namespace: str, owner: str, runs: str, begun: float, number: int, state: str, failed: int, error: str
) -> Made:
    tail = (
        f"{datetime.fromtimestamp(begun, UTC):%m%d%H}"
        if name == "etl-hourly"
        else f"{(number + 11) * 40503 % 65536:04x}"
    )
    return Made(
        Cluster(namespace, f"{name}-{tail}", owner, name if owner else ""),
        session_name(begun, number),
        float(int(begun)),
        state,
        runs.format(n=number),
        f"submit-{number:05d}",
        failed,
        error if failed else "",
        ("2.60.0", "2.60.0", "2.58.1")[number % 3],
    )


def fill(store: Store, folder: Path, now: float) -> None:
    """Write the archive that the screenshots show."""
    for made in fleet(now):
        write_made(store, made, now, summarized=True)
    write_archive(store, Generation.C, REAL)
    write_poor_sessions(store)
    capture = captured()
    for node, events in capture.events.items():
        is_head = (node, "gcs_server.out") in capture.logs
        _end(store, REAL, capture.session, node, "head" if is_head else "worker", len(events))
    generated = generate(folder, tasks=60_000, cluster=LARGE, session=LARGE_SESSION)
    for file in folder.rglob("*"):
        if file.is_file() and file.parent != folder:
            store.put(file.relative_to(folder).as_posix(), file.read_bytes())
    _end(store, LARGE, LARGE_SESSION, "head", "head", generated.events)
    fill_training(store)


def fill_training(store: Store) -> None:
    """Write the session whose charts the screenshots show."""
    begun = _moment(TRAINING_SESSION)
    store.put(layout.marker_key("", TRAINING, TRAINING_SESSION), b"")
    starts = (begun + 20 + 39 * number for number in range(60))
    tasks = [ran(number, "train_shard", start, start + 35) for number, start in enumerate(starts, 1)]
    key = layout.event_file_key(layout.session_prefix("", TRAINING, TRAINING_SESSION), NODE, None, round(begun) * 10**9)
    events = [msgspec.json.encode(event) for task in tasks for event in task]
    store.put(key, encode_events(events))
    _end(store, TRAINING, TRAINING_SESSION, NODE, "head", len(events), lasted=2420)
    write_metrics(store, training(TRAINING_SESSION, round(begun * 1000) + 20_000), TRAINING, TRAINING_SESSION)
    write_dashboards(store, "2.60", TRAINING, TRAINING_SESSION)


def _end(
    store: Store, cluster: Cluster, session: str, node: str, role: str, events: int, *, lasted: float = 164
) -> None:
    """The ledger of a collector that shut down; without one, a session that was just written is live."""
    begun = _moment(session)
    counts = {"received": events, "stored": events, "dropped_by_ray": 0}
    ledger = {"role": role, "started": begun, "alive_until": begun + lasted, "ended": "graceful", "events": counts}
    store.put(layout.ledger_key("", cluster, session, node), msgspec.json.encode(ledger))


def _moment(session: str) -> float:
    return datetime.strptime(session[8:27] + "+0000", "%Y-%m-%d_%H-%M-%S%z").timestamp()


@contextmanager
def page_of(browser: Chromium, width: int = 1400, height: int = 900, scheme: str = "light") -> Iterator[Page]:
    with browser.page(width, height) as page:
        page.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        yield page


def take(browser: Chromium, server: Served) -> None:
    """Take all screenshots."""
    assert server.get(f"{REAL_PATH}/api/version").status == 200  # opened, so that the list shows its jobs
    for name, width, height, scheme in (
        ("home", 1400, 900, "light"),
        ("home-dark", 1400, 900, "dark"),
        ("home-phone", 390, 844, "light"),
    ):
        with page_of(browser, width, height, scheme) as page:
            page.open(f"{server.url}/")
            page.wait(KNOWN)
            page.picture(IMAGES / f"{name}.png")
    with page_of(browser) as page:
        page.open(f"{server.url}/s/{LARGE.namespace}/{LARGE.name}/{LARGE_SESSION}/")
        page.wait("parseInt(document.querySelector('[data-percent]')?.textContent) >= 30")
        page.picture(IMAGES / "opening.png")
    with page_of(browser) as page:
        page.open(f"{server.url}{REAL_PATH}/_session")
        page.picture(IMAGES / "session.png")
    for cluster in (SILENT, SLOW, KILLED):
        with page_of(browser, height=620) as page:
            address = f"/s/{cluster.namespace}/{cluster.name}/{SESSION}"
            assert server.get(f"{address}/api/version").status == 200
            page.open(f"{server.url}{address}/_session")
            page.picture(IMAGES / f"{cluster.name}.png")
    with page_of(browser) as page:
        page.open(f"{server.url}{REAL_PATH}/#/jobs/04000000")
        page.wait(f"{TEXT}.includes('Failed: ') && {TEXT}.includes('driver start')")
        page.click("[data-testid=progress-bar-segment]")
        page.wait(f"{TEXT}.includes('raiser')")
        page.value("scrollTo(0, 0)")
        page.picture(IMAGES / "dashboard.png")
    take_metrics(browser, server)
    with page_of(browser) as page:
        node = next(node for node in captured().events if (node, "gcs_server.out") not in captured().logs)
        page.open(f"{server.url}{REAL_PATH}/#/logs/viewer?nodeId={node}&fileName=raylet.out")
        page.wait(f"{TEXT}.includes('main.cc')")
        page.picture(IMAGES / "dashboard-logs.png")


def take_metrics(browser: Chromium, server: Served) -> None:
    """Take the screenshot of charts."""
    with page_of(browser, height=1060) as page:
        page.open(f"{server.url}/s/{TRAINING.namespace}/{TRAINING.name}/{TRAINING_SESSION}/#/metrics")
        charts = "document.querySelector('iframe')?.contentDocument"
        page.wait(f"{charts}.querySelectorAll('[data-drawn]').length > 4 && !{charts}.querySelector('[aria-busy]')")
        page.picture(IMAGES / "metrics.png")


def main() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        storage = SeaweedFS(folder / "s3")
        storage.start()
        try:
            store = open_store(resolve("s3://ray-history/prod", Upstream(), s3_variables(storage)))
            (folder / "generated").mkdir()
            fill(store, folder / "generated", time.time())
            with Chromium(folder) as browser, served(store, folder / "cache") as server:
                server.get("/select_cluster")
                take(browser, server)
        finally:
            storage.stop()


if __name__ == "__main__":
    main()
