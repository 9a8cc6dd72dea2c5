"""Ray's own counters of what its aggregator agent received, sent and lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.collector.polling.agent_metrics import AgentMetrics, dropped_events, scrape

from .dashboard_stand_in import DashboardStandIn

_COMMON = 'Component="aggregator_agent",SessionName="session_x",Version="2.60.0",ip="192.0.2.2",pid="26646"'


def sample(name: str, value: float | str, labels: str = "") -> str:
    """A line as Ray 2.60 exports it."""
    return f"ray_aggregator_agent_{name}{{{_COMMON}{',' if labels else ''}{labels}}} {value}"


TEXT = "\n".join(
    [
        "# HELP ray_aggregator_agent_events_received_total Total number of events received via AddEvents gRPC.",
        "# TYPE ray_aggregator_agent_events_received_total counter",
        sample("events_received_total", 2621.0),
        sample("published_events_total", 308.0, 'consumer="http_service"'),
        sample("published_events_total", 2621.0, 'consumer="ray_gcs"'),
        sample("filtered_events_total", 7.0, 'consumer="http_service"'),
        sample("queue_dropped_events_total", 501.0, 'consumer="http_service",event_type="TASK_DEFINITION_EVENT"'),
        sample("queue_dropped_events_total", 1812.0, 'consumer="http_service",event_type="TASK_LIFECYCLE_EVENT"'),
        sample("queue_dropped_events_total", 9.0, 'consumer="ray_gcs",event_type="TASK_LIFECYCLE_EVENT"'),
        sample("publish_latency_seconds_count", 4.0, 'Outcome="success",consumer="http_service"'),
        sample("consecutive_failures_since_last_success", 3.0, 'consumer="http_service"'),
        "ray_node_cpu_utilization{} 12.0",
    ]
)


def test_the_counters_are_those_of_the_consumer_that_sends_to_us() -> None:
    found = dropped_events(TEXT)
    assert found == AgentMetrics(
        received=2621,
        published=308,
        filtered=7,
        dropped={"TASK_DEFINITION_EVENT": 501, "TASK_LIFECYCLE_EVENT": 1812},
        failing_in_a_row=3,
    )
    assert found.lost == 2313


def test_ray_2_49_calls_its_counters_otherwise() -> None:
    labels = 'Component="event_aggregator_agent",SessionName="session_x",Version="2.49.2",ip="192.0.2.2",pid="20235"'
    counts = {
        "events_received_total": 500.0,
        "events_received_created": 1.7951108838892531e09,
        "events_failed_to_add_to_aggregator_total": 2.0,
        "events_dropped_at_event_aggregator_total": 30.0,
        "events_dropped_at_event_aggregator_created": 1.7951108838892941e09,
        "events_published_total": 400.0,
        "events_filtered_out_total": 7.0,
    }
    page = "\n".join(f"ray_event_aggregator_agent_{name}{{{labels}}} {value}" for name, value in counts.items())
    expected = AgentMetrics(received=500, published=400, filtered=7, dropped={"unknown": 30}, not_buffered=2)
    assert dropped_events(page) == expected
    assert expected.lost == 32


def test_missing_counters_are_unknown_and_not_zero() -> None:
    assert dropped_events("") == dropped_events("ray_node_cpu_utilization{} 1.0\n") == AgentMetrics()
    assert AgentMetrics().lost is None
    only_received = dropped_events(sample("events_received_total", 12.0))
    assert (only_received.received, only_received.published, only_received.dropped) == (12, None, None)
    assert only_received.lost == 0  # Ray counts, and has created no counter of losses


def test_all_kinds_of_loss_are_added() -> None:
    text = "\n".join(
        [
            sample("publish_failures_total", 5.0, 'consumer="http_service"'),
            sample("events_buffer_add_failures_total", 2.0),
            sample("queue_dropped_events", 1.0, 'consumer="http_service",event_type="X"'),  # no _total: other exporters
        ]
    )
    found = dropped_events(text)
    assert (found.failed, found.not_buffered, found.dropped, found.lost) == (5, 2, {"X": 1}, 8)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "1.2.3", ""])
def test_a_number_that_is_none_is_left_out(value: str) -> None:
    assert dropped_events(sample("events_received_total", value)).received is None


def test_labels_may_hold_anything() -> None:
    odd = r'consumer="http_service",note="a \"quoted\" } and , = \\",event_type="T"'
    assert dropped_events(sample("queue_dropped_events_total", "1e+06 1794797413", odd)).dropped == {"T": 1_000_000}


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    dropped_events(text)
    dropped_events("ray_aggregator_agent_" + text)


def test_scraping_asks_the_agent_and_says_nothing_when_there_is_none() -> None:
    with DashboardStandIn() as agent:
        agent.answers["/metrics"] = TEXT.encode()
        port = int(agent.url.rpartition(":")[2])
        assert scrape(port, timeout=5) == dropped_events(TEXT)
        del agent.answers["/metrics"]
        assert scrape(port, timeout=5) is None
    assert scrape(port, timeout=1) is None
