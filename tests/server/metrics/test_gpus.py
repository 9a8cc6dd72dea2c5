"""GPU metrics of a real head with one H200 mean what the driver said at the same moments.

`tests/data/gpu-2.60.json.xz` has the lines about GPUs of fourteen scrapes, and nvidia-smi's figures beside them. Ray's
own samples are up to five seconds old by then, so that some moments show what was before.
"""

from __future__ import annotations

import io
import json
import lzma
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ray_history.archive import layout
from ray_history.archive.layout import MetricBlockKey
from ray_history.metrics.block import OpenBlock
from tests.server.metrics.recorded_sessions import OWNER, PATH, write_dashboards
from tests.server.serving import Served, served
from tests.server.ui.markup import parsed
from tests.server.ui.written_sessions import SESSION, end_long_ago, write_session
from tests.support.prometheus import ask

MOMENTS: list[dict[str, Any]] = json.loads(
    lzma.decompress((Path(__file__).parents[2] / "data" / "gpu-2.60.json.xz").read_bytes())
)
NODE = "4cb8c520ce7e6ae1c5f420ad426681493a80e6297221ccfa31dc2440"
STALE = ("10-victim-stale", "11-oom-begins", "13-oom-just-over")
"""Something happened less than five seconds before, which Ray did not know yet."""
CHANGING = ("03-four-more-matmuls", *STALE)
"""Moments between two loads."""
CURRENT = [moment for moment in MOMENTS if moment["name"] not in STALE]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("gpus")
    store = write_session(folder, [])
    block = OpenBlock(MOMENTS[0]["target"])
    for moment in MOMENTS:
        lines = [line.replace("session_2026-11-19_04-37-22_601305_439", SESSION) for line in moment["lines"]]
        block.add(moment["time_ms"], lines)
    store.put(layout.metric_block_key("", OWNER, SESSION, MetricBlockKey(NODE, "agent", block.first)), block.encode())
    write_dashboards(store, "2.60")
    end_long_ago(folder)
    with served(store, folder / "cache") as running:
        running.get(f"{PATH}/api/version")
        yield running


def values(server: Served, query: str, moment: dict[str, Any], label: str = "GpuIndex") -> dict[str, float]:
    """The value of each series at a moment, by a label."""
    url = f"{server.url}{PATH}/prometheus/api/v1/query"
    status, answer = ask(url, query=query, time=moment["time_ms"] / 1000)
    assert status == 200, answer
    return {series["metric"].get(label, ""): float(series["value"][1]) for series in answer["data"]["result"]}


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: moment["name"])
def test_the_memory_of_a_device_adds_up(server: Served, moment: dict[str, Any]) -> None:
    assert values(server, "ray_node_gram_used + ray_node_gram_available", moment) == {
        "0": moment["driver"]["total_mib"]
    }
    assert values(server, "ray_node_gpus_available", moment) == {"0": 1}


@pytest.mark.parametrize("moment", CURRENT, ids=lambda moment: moment["name"])
def test_the_memory_of_a_device_is_the_drivers_with_what_it_reserves(server: Served, moment: dict[str, Any]) -> None:
    driver = moment["driver"]
    (used,) = values(server, "ray_node_gram_used", moment).values()
    assert used == pytest.approx(driver["used_mib"] + driver["reserved_mib"], abs=2), "MiB"
    assert values(server, "ray_node_gram_available", moment) == {"0": driver["free_mib"]}


@pytest.mark.parametrize("moment", CURRENT, ids=lambda moment: moment["name"])
def test_the_memory_of_processes_is_the_drivers(server: Served, moment: dict[str, Any]) -> None:
    found = values(server, "sum by (Component) (ray_component_gpu_memory_mb) > 0", moment, "Component")
    assert found == moment["driver"]["processes"], "MiB, by the title of the process"


def test_a_process_that_changes_its_title_is_another_series(server: Served) -> None:
    by_name = {moment["name"]: moment for moment in MOMENTS}
    titles = {"05-training": "ray::train-1", "06-trainer-rests": "ray::Trainer", "08-just-ended": "ray::Trainer"}
    for name, title in titles.items():
        assert values(server, "sum(ray_component_gpu_memory_mb)", by_name[name]) == {"": 23_248}
        assert values(server, "ray_component_gpu_memory_mb > 0", by_name[name], "Component") == {title: 23_248}


@pytest.mark.parametrize(
    "moment", [moment for moment in MOMENTS if moment["name"] not in CHANGING], ids=lambda moment: moment["name"]
)
def test_load_and_power_are_the_drivers(server: Served, moment: dict[str, Any]) -> None:
    driver = moment["driver"]
    assert values(server, "ray_node_gpus_utilization", moment)["0"] == pytest.approx(driver["utilization"], abs=1)
    watts = values(server, "ray_node_gpu_power_milliwatts / 1000", moment)["0"]
    assert watts == pytest.approx(driver["power_watts"], rel=0.02)


def test_the_load_of_processes_trails(server: Served) -> None:
    (moment,) = [moment for moment in MOMENTS if moment["name"] == "08-just-ended"]
    assert values(server, "ray_node_gpus_utilization", moment) == {"0": 0}
    assert values(server, "ray_component_gpu_percentage > 0", moment, "Component") == {"ray::Trainer": 98}


def test_panels_show_bytes_by_device_and_by_process(server: Served) -> None:
    moment = MOMENTS[11]  # the next ones show the same, so that any step after it does
    for number, prefix, expected in (
        (18, "Used GRAM: ", {"Used GRAM": 118_493}),
        (46, "ray::", {"ray::grow-until-it-fails": 115_206, "ray::InGroup": 2_658}),
    ):
        answer = server.get(f"{PATH}/grafana/api/dashboards/rayDefaultDashboard/panels/{number}?width=2000").json
        step = (moment["time_ms"] - answer["start_ms"]) // answer["step_ms"] + 1
        found = {
            series["name"].partition(": ")[0]: series["values"][step] / (1 << 20)
            for series in answer["series"]
            if series["name"].startswith(prefix) and series["values"][step]
        }
        assert found == expected


def test_the_page_has_charts_of_gpus(server: Served) -> None:
    page = parsed(server.get(f"{PATH}/_session", {"Accept": "text/html", "Sec-Fetch-Mode": "navigate"}).body)
    labels = [each.attributes.get("aria-label", "") for each in page.all("svg", "chart")]
    most = 100 * 118_493 / 143_771
    assert f"GPU memory: at most {most:.0f} %" in labels
    assert "GPU: at most 100 %" in labels
    notes = [each.text for each in page.all("span", "key")]
    assert "ray::grow-until-it-fails 121 GB" in notes, "the process that used most"


def test_the_download_has_the_tables(server: Served, tmp_path: Path) -> None:
    archive = zipfile.ZipFile(io.BytesIO(server.get(f"{PATH}/_download").body))
    tables = {"metrics", "series", "metric_blocks", "dashboards"}
    assert tables <= {Path(name).stem for name in archive.namelist() if name.startswith("tables/")}
    archive.extract("tables/metrics.parquet", tmp_path)
    ((rows,),) = duckdb.sql(f"select count(*) from '{tmp_path}/tables/metrics.parquet'").fetchall()
    assert rows > 100
    assert "complete" in archive.read("COMPLETE.txt").decode()


def test_tables_have_gpus_by_device_and_by_process(server: Served) -> None:
    tables = next(iter(server.sessions._open.values())).opened.directory
    with duckdb.connect() as database:
        for table in ("metrics", "series"):
            database.execute(f"create view {table} as from '{tables / table}.parquet'")
        query = """
            select labels[?], max(value) from metrics join series using (series_id) where name = ? group by 1 order by 2
        """
        devices = database.execute(query, ["GpuIndex", "ray_node_gram_used"]).fetchall()
        processes = database.execute(query, ["Component", "ray_component_gpu_memory_mb"]).fetchall()
    assert devices == [("0", 118_493)]
    assert processes[-1] == ("ray::grow-until-it-fails", 115_206)
