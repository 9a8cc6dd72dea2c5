"""Keys of every layout generation, against upstream's golden vectors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.archive import layout
from ray_history.archive.layout import Cluster, EndpointKey, EventFileKey, Generation, LogKey
from ray_history.archive.names import InvalidName

NODE = "4e9bd54c586b5f5a12341811e1e9123d022af63deb9b42ac97854cc1"
PLAIN = Cluster("ns", "cluster")

component = st.from_regex(r"[a-z0-9][a-z0-9-]{0,20}", fullmatch=True)
clusters = st.one_of(
    st.builds(Cluster, component, component),
    st.builds(Cluster, component, component, st.sampled_from(["rayjob", "RayService"]), component),
)


def test_the_data_prefix_names_the_owner() -> None:
    assert layout.join("", "cluster-history", Cluster("default", "cluster-1", "rayjob", "job-1").path) == (
        "cluster-history/rayjob/default/job-1/cluster-1"
    )


@pytest.mark.parametrize(
    ("cluster", "root", "session", "key"),
    [
        (PLAIN, "myroot", "session-123", "myroot/cluster-metadata/raycluster/ns_cluster/session-123"),
        (
            Cluster("ns", "cluster", "RaYjOb", "job1"),
            "",
            "session-456",
            "cluster-metadata/rayjob/ns_job1_cluster/session-456",
        ),
        (Cluster("ns", "cluster", "rayjob"), "", "session-789", "cluster-metadata/raycluster/ns_cluster/session-789"),
    ],
)
def test_marker_keys_are_upstreams(cluster: Cluster, root: str, session: str, key: str) -> None:
    assert layout.marker_key(root, cluster, session) == key


def test_event_keys_are_upstreams() -> None:
    prefix = layout.session_prefix("history", PLAIN, "session_abc")
    assert layout.event_file_key(prefix, "node-1", None, 1778668200000000000) == (
        "history/cluster-history/raycluster/ns/cluster/session_abc/node-1/node_events/"
        "node-1-2026-05-13-10-1778668200000000000.jsonl.gz"
    )
    prefix = layout.session_prefix("history", PLAIN, "session_xyz")
    assert layout.event_file_key(prefix, "nX", "job-7", 1767322800000000000, compressed=False) == (
        "history/cluster-history/raycluster/ns/cluster/session_xyz/nX/job_events/job-7/"
        "nX-2026-01-02-03-1767322800000000000.jsonl"
    )


def test_a_job_id_in_base64_becomes_hex_in_the_key() -> None:
    assert "/job_events/01000000/" in layout.event_file_key("p", NODE, "AQAAAA==", 0)


def test_a_job_id_that_is_no_safe_name_goes_to_the_node_events() -> None:
    assert "/node_events/" in layout.event_file_key("p", NODE, "../../etc", 0)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("/api/serve/applications/", "restful__api__serve__applications"),
        ("/api/v0/nodes/summary", "restful__api__v0__nodes__summary"),
        ("/timezone", "restful__timezone"),
        (
            "/api/v0/placement_groups?detail=1&limit=10000",
            "restful__api__v0__placement_groups?detail=1&limit=10000",
        ),
    ],
)
def test_endpoint_keys_are_upstreams(url: str, name: str) -> None:
    assert layout.endpoint_name(url) == name


def test_a_mixed_case_owner_kind_is_understood() -> None:
    marker = layout.parse_marker(
        "cluster-metadata/RaYSerVice/defaultns_myservice_mycluster3/session_2024-05-15_10-30-55_123456"
    )
    assert marker is not None
    assert marker.cluster == Cluster("defaultns", "mycluster3", "rayservice", "myservice")


@pytest.mark.parametrize(
    "key",
    [
        "cluster-metadata",
        "cluster-metadata/raycluster",
        "cluster-metadata/raycluster/ns_cluster",
        "cluster-metadata/raycluster/ns_cluster/session/extra",
        "cluster-metadata/raycluster/ns/session",
        "cluster-metadata/raycluster/ns_owner_cluster/session",
        "cluster-metadata/rayjob/ns_cluster/session",
        "cluster-metadata/raycron/ns_cluster/session",
        "cluster-metadata/raycluster/ns_clu ster/session",
        "cluster-metadata/raycluster/.._cluster/session",
        "metadir/cluster",
        "metadir/onlyname/session",
        "other/raycluster/ns_cluster/session",
    ],
)
def test_other_keys_are_not_markers(key: str) -> None:
    assert layout.parse_marker(key) is None


@given(clusters, component)
def test_every_marker_written_is_read_back(cluster: Cluster, session: str) -> None:
    marker = layout.parse_marker(layout.marker_key("", cluster, session))
    assert marker == layout.Marker(cluster, session, legacy=False)


@given(component, component, component)
def test_generation_a_markers_put_the_cluster_first(namespace: str, name: str, session: str) -> None:
    marker = layout.parse_marker(f"metadir/{name}_{namespace}/{session}")
    assert marker == layout.Marker(Cluster(namespace, name), session, legacy=True)


@given(st.text())
def test_no_text_makes_parsing_fail(text: str) -> None:
    layout.parse_marker(text)
    layout.parse_data_key(text)
    layout.parse_marker(f"metadir/{text}/{text}")
    layout.parse_marker(f"cluster-metadata/raycluster/{text}/{text}")
    layout.parse_data_key(f"{text}/node_events/{text}")


@pytest.mark.parametrize(
    ("key", "parsed"),
    [
        (f"node_events/{NODE}-2026-01-11-19", EventFileKey(NODE, None, "2026-01-11-19", None, Generation.A)),
        (
            f"job_events/AgAAAA==/{NODE}-2026-01-11-19",
            EventFileKey(NODE, "02000000", "2026-01-11-19", None, Generation.A),
        ),
        (f"node_events/{NODE}-2026-01-11-19.gz", EventFileKey(NODE, None, "2026-01-11-19", None, Generation.A_PRIME)),
        (f"{NODE}/node_events/{NODE}-2026-01-11-19.gz", EventFileKey(NODE, None, "2026-01-11-19", None, Generation.B)),
        (
            f"{NODE}/job_events/01000000/{NODE}-2026-08-03-10-1785751300000000000.jsonl.gz",
            EventFileKey(NODE, "01000000", "2026-08-03-10", 1785751300000000000, Generation.C),
        ),
        (
            f"{NODE}/job_events//w8AAA==/{NODE}-2026-08-03-10.gz",
            EventFileKey(NODE, "ff0f0000", "2026-08-03-10", None, Generation.B),
        ),
        (f"{NODE}/logs/events/event_GCS.log", LogKey(NODE, "events/event_GCS.log")),
        (f"logs/{NODE}/raylet.out", LogKey(NODE, "raylet.out")),
        ("fetched_endpoints/restful__timezone", EndpointKey("restful__timezone")),
        (f"{NODE}/node_events/foo.txt", None),
        (f"{NODE}/node_events/n-2026-05-13-1", None),
        (f"{NODE}/node_events", None),
        ("some-file", None),
    ],
)
def test_data_keys_of_all_generations_are_parsed(key: str, parsed: layout.DataKey | None) -> None:
    assert layout.parse_data_key(key) == parsed


@given(st.sampled_from([None, "01000000", "AgAAAA=="]), st.integers(0, 2**62), st.booleans())
def test_every_event_key_written_is_read_back(job: str | None, created: int, compressed: bool) -> None:
    key = layout.event_file_key("", NODE, job, created, compressed=compressed)
    parsed = layout.parse_data_key(key)
    assert isinstance(parsed, EventFileKey)
    assert (parsed.node, parsed.created_ns, parsed.generation) == (NODE, created, Generation.C)


@pytest.mark.parametrize("hostile", ["..", "a/b", "a\\b", "", "a\0", "x" * 300, "%2e%2e/"])
def test_no_hostile_name_gets_into_a_key(hostile: str) -> None:
    for build in (
        lambda: Cluster(hostile, "c"),
        lambda: Cluster("n", hostile),
        lambda: layout.session_prefix("", PLAIN, hostile),
        lambda: layout.marker_key("", PLAIN, hostile),
        lambda: layout.ledger_key("", PLAIN, "session_x", hostile),
        lambda: layout.tail_key("", PLAIN, "session_x", hostile, 1),
        lambda: layout.event_file_key("p", hostile, None, 0),
        lambda: layout.log_key("p", hostile, "x"),
    ):
        with pytest.raises(InvalidName):
            build()


def test_our_own_trees_stand_apart_from_upstreams() -> None:
    for prefix in (layout.LEDGER, layout.TAILS, layout.INDEX):
        assert prefix.split("/")[0] not in (layout.METADATA, layout.HISTORY, layout.METADIR)
    assert layout.tail_key("", PLAIN, "s", NODE, 7).endswith(f"/s/{NODE}/00000000000000000007")


def test_joining_drops_empty_parts_and_collapses_slashes() -> None:
    assert layout.join("", "/a//b/", "", "c") == "a/b/c"
