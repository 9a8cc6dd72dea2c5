"""Panels are computed: every one of Ray's, of five versions, on an invented cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import duckdb
import numpy as np
import pytest

from ray_history.metrics.grafana.charts import MAX_SERIES, Chart, ChartMaker
from ray_history.metrics.grafana.dashboard import Dashboard, Panel, Target, read_dashboard
from ray_history.metrics.grafana.pickers import choices
from ray_history.metrics.grafana.times import TimeRange, steps
from ray_history.metrics.grafana.variables import texts
from ray_history.metrics.promql.errors import BadQuery
from ray_history.metrics.promql.evaluate import evaluate
from ray_history.metrics.promql.limits import Limits
from ray_history.metrics.promql.samples import SampleReader
from ray_history.metrics.promql.vector import Vector
from tests.metrics.dashboards import VERSIONS, dashboards, expressions
from tests.metrics.generated import INSTANCES, START, cluster
from tests.metrics.promql.test_oracle import OfDatabase

SCRAPES = 30
SHOWN = TimeRange(START, START + (SCRAPES - 1) * 15_000)
STEP = 60_000


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SampleReader]:
    folder = tmp_path_factory.mktemp("charts")
    queries = {query for version in VERSIONS for query in expressions(version)}
    cluster(sorted(queries), scrapes=SCRAPES).write_tables(folder)
    with duckdb.connect() as database:
        tables = (f"read_parquet('{folder / name}.parquet')" for name in ("series", "metrics"))
        series, metrics = tables
        yield SampleReader(OfDatabase(database), series=series, metrics=metrics)


def matching(pattern: str, names: Sequence[str]) -> list[bool]:
    return [bool(re.search(pattern, name)) for name in names]


def chart(reader: SampleReader, panel: Panel, dashboard: Dashboard, shown: TimeRange = SHOWN) -> Chart:
    maker = ChartMaker(reader, matching, Limits)
    return maker.chart(panel, texts(dashboard, {}, shown, STEP), steps(shown, STEP))


def panel_of(*targets: Target, kind: str = "graph") -> Panel:
    return Panel(1, "", "", kind, 12, 8, "", None, None, targets)


EMPTY = Dashboard("x", "X", (), ())


def test_every_panel_of_five_versions_is_drawn(reader: SampleReader) -> None:
    seen, empty, refused = set[str](), set[str](), 0
    for version in VERSIONS:
        for written in dashboards(version).values():
            found = read_dashboard(json.dumps(written))
            for panel in (panel for row in found.rows for panel in row.panels):
                queries = repr(panel.targets)
                if queries in seen:
                    continue
                seen.add(queries)
                drawn = chart(reader, panel, found)
                # As in Prometheus: two metrics that differ in nothing but their names, which rate() leaves out.
                assert all("same labelset" in problem for problem in drawn.problems), (version, panel.title)
                refused += len(drawn.problems)
                assert all(len(series.values) == len(drawn.times) for series in drawn.series)
                if not drawn.series:
                    empty.add(panel.title)
    assert len(seen) > 250
    assert refused < 10
    assert len(empty) < len(seen) / 10, sorted(empty)


def test_values_are_those_of_the_query(reader: SampleReader) -> None:
    drawn = chart(reader, panel_of(Target("sum(ray_node_mem_used) by (instance)", "{{instance}}", "A")), EMPTY)
    expected = evaluate(reader, "sum(ray_node_mem_used) by (instance)", drawn.times, Limits())
    assert isinstance(expected, Vector)
    assert {series.name for series in drawn.series} == set(INSTANCES)
    for row in expected.rows():
        (series,) = (each for each in drawn.series if each.name == row.labels["instance"])
        assert list(series.values) == [
            value if present else None for value, present in zip(row.values.tolist(), row.present.tolist(), strict=True)
        ]


def test_a_failing_query_costs_no_other(reader: SampleReader) -> None:
    drawn = chart(
        reader, panel_of(Target("sum((", "", "A"), Target("1 + 1", "two", "B"), Target('"x"', "", "C")), EMPTY
    )
    assert [(series.name, set(series.values)) for series in drawn.series] == [("two", {2.0})]
    assert [problem.partition(":")[0] for problem in drawn.problems] == ["Query A", "Query C"]


def test_infinite_values_and_nan_are_gaps(reader: SampleReader) -> None:
    drawn = chart(reader, panel_of(Target("1 / 0", "a", "A"), Target("0 / 0", "b", "B")), EMPTY)
    assert [set(series.values) for series in drawn.series] == [{None}, {None}]


def test_buckets_of_a_histogram_are_counted_apart(reader: SampleReader) -> None:
    metric = "ray_data_task_completion_time_bucket"
    target = Target(f"sum by (le) (max_over_time({metric}[$__range]))", "{{le}}", "A", format="heatmap", instant=True)
    drawn = chart(reader, panel_of(target, kind="bars"), EMPTY)
    assert [series.name for series in drawn.series] == ["0.1", "1.0", "5.0", "25.0", "+Inf"]
    assert len(drawn.times) == 1
    whole = evaluate(reader, f'sum(max_over_time({metric}{{le="+Inf"}}[435s]))', drawn.times, Limits())
    assert isinstance(whole, Vector)
    assert sum(series.values[0] or 0 for series in drawn.series) == pytest.approx(whole.values[0, 0])


def test_an_instant_query_among_others_is_at_the_end(reader: SampleReader) -> None:
    drawn = chart(reader, panel_of(Target("1 + 0", "all", "A"), Target("2 + 0", "end", "B", instant=True)), EMPTY)
    last = len(drawn.times) - 1
    assert [list(series.values) for series in drawn.series] == [[1.0] * (last + 1), [None] * last + [2.0]]


def test_of_too_many_series_the_largest_are_drawn(reader: SampleReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray_history.metrics.grafana.charts.MAX_SERIES", 2)
    targets = [Target(f"vector({number})", str(number), "A") for number in (3, 1, 2)]
    drawn = chart(reader, panel_of(*targets), EMPTY)
    assert ([series.name for series in drawn.series], drawn.left_out) == (["3", "2"], 1)
    assert MAX_SERIES >= 100


def test_a_pattern_that_is_none_is_a_problem(reader: SampleReader) -> None:
    def refusing(pattern: str, names: Sequence[str]) -> list[bool]:
        raise ValueError(f"invalid regular expression {pattern!r}")

    found = (
        read_dashboard(
            json.dumps({"uid": "x", "panels": [{"type": "graph", "id": 1, "seriesOverrides": [{"alias": "/((/"}]}]})
        )
        .rows[0]
        .panels[0]
    )
    drawn = ChartMaker(reader, refusing, Limits).chart(found, {}, steps(SHOWN, STEP))
    assert drawn.problems == ["Overrides of series: invalid regular expression '(('"]


def picked(reader: SampleReader, name: str, file: str, **chosen: list[str]) -> list[str]:
    found = read_dashboard(json.dumps(dashboards("2.60")[f"{file}_grafana_dashboard.json"]))
    variable = found.variable(name)
    assert variable is not None

    def extracting(pattern: str, names: Sequence[str]) -> list[str]:
        found = (re.search(pattern.replace("(?<", "(?P<"), name) for name in names)
        return [match[1] if match else "" for match in found]

    return choices(variable, texts(found, chosen, SHOWN, STEP), reader, SHOWN.end, Limits(), extracting)


def test_variables_have_the_values_of_labels(reader: SampleReader) -> None:
    assert picked(reader, "Instance", "default") == list(INSTANCES)
    assert picked(reader, "Instance", "default", SessionName=["another"]) == []
    assert picked(reader, "RayNodeType", "default") == ["head", "worker"]
    assert picked(reader, "window", "train") == ["30s", "1m", "5m", "15m"]


def test_variables_have_the_values_of_results(reader: SampleReader) -> None:
    shown = evaluate(
        reader, "count by (dataset)(last_over_time(ray_data_output_bytes[435s]))", np.array([SHOWN.end]), Limits()
    )
    assert isinstance(shown, Vector)
    expected = {labels.get("dataset", "") for labels in shown.labels} - {""}
    assert picked(reader, "DatasetID", "data") == sorted(expected)
    assert expected


def test_other_queries_of_variables_are_refused(reader: SampleReader) -> None:
    text = {"uid": "x", "templating": {"list": [{"name": "a", "type": "query", "query": "metrics(ray_.*)"}]}}
    variable = read_dashboard(json.dumps(text)).variables[0]
    with pytest.raises(BadQuery, match="unsupported"):
        choices(variable, {}, reader, SHOWN.end, Limits(), lambda _, names: list(names))
