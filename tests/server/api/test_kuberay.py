"""Selecting a session by path, and with KubeRay's routes by cookie."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.server.serving import Served, served
from tests.support.captured import captured, write_archive

SESSION = captured().session
OLD = SESSION.replace("2026-11-15", "2026-11-14")
S = f"/s/default/demo/{SESSION}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("addressing")
    store = open_store(DirectorySettings(folder / "archive"))
    write_archive(store, Generation.C, Cluster("default", "demo"))
    write_archive(store, Generation.C, Cluster("team", "nightly-x7", "rayjob", "nightly"))
    with served(store, folder / "cache") as running:
        yield running


def cookies(server: Served, path: str) -> dict[str, str]:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    found = [value.split(";")[0] for name, value in response.getheaders() if name.lower() == "set-cookie"]
    connection.close()
    return {"Cookie": "; ".join(found)}


def test_a_session_is_selected_by_path(server: Served) -> None:
    assert server.get(f"{S}/api/v0/nodes").json["data"]["result"]["total"] == 2


def test_latest_is_the_newest_session(server: Served) -> None:
    assert server.get("/s/default/demo/latest/_status").json["session"] == SESSION


def test_an_unknown_session_is_not_found_and_the_answer_names_the_list(server: Served) -> None:
    answer = server.get("/s/default/nobody/latest/api/v0/tasks")
    assert answer.status == 404
    assert "see /clusters" in answer.json["msg"]


def test_the_page_of_a_session_ends_in_a_slash_since_its_urls_are_relative(server: Served) -> None:
    answer = server.get(f"{S}?dashboard=x")
    assert answer.status == 307
    assert answer.headers["location"].endswith(f"{S}/?dashboard=x")


def test_clusters_are_listed_as_in_kuberay(server: Served) -> None:
    rows = server.get("/clusters").json
    assert {
        "name": "demo",
        "namespace": "default",
        "sessionName": SESSION,
        "createTime": "2026-11-15T20:55:36Z",
        "createTimeStamp": 1794776136,
    } in rows
    (owned,) = [row for row in rows if row["namespace"] == "team"]
    assert (owned["ownerKind"].lower(), owned["ownerName"]) == ("rayjob", "nightly")
    assert server.get("/clusters/").json == rows


@pytest.mark.parametrize(
    "path",
    [
        f"/enter_cluster/default/demo/{SESSION}",
        "/enter_cluster/default/demo/latest",
        "/enter_cluster/default/raycluster/demo",
        f"/enter_cluster/default/RayCluster/demo/{SESSION}",
        "/enter_cluster/team/rayjob/nightly",
        "/enter_cluster/team/rayjob/nightly/latest",
    ],
)
def test_a_browser_enters_a_session_in_all_of_kuberays_ways(server: Served, path: str) -> None:
    answer = server.get(path)
    assert answer.json["result"] == "success"
    assert answer.json["session"] == SESSION
    entered = cookies(server, path)
    assert {part.split("=")[0] for part in entered["Cookie"].split("; ")} == {
        "cluster_name",
        "cluster_namespace",
        "session_name",
        "owner_kind",
        "owner_name",
        "session_renewed",
    }
    assert server.get("/api/v0/nodes", entered).json["data"]["result"]["total"] == 2


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/enter_cluster/default/demo/live", 404),
        ("/enter_cluster/default/demo/session_2020-01-01_00-00-00_0_0", 404),
        ("/enter_cluster/default/raycluster/nobody", 404),
        ("/enter_cluster/default", 400),
        ("/enter_cluster/default/rayzebra/demo/latest", 400),
        ("/enter_cluster/a/b/c/d/e", 400),
    ],
)
def test_an_invalid_path_to_enter_is_refused_with_a_hint(server: Served, path: str, status: int) -> None:
    answer = server.get(path)
    assert answer.status == status
    assert answer.json["result"] is False
    assert answer.json["msg"]


def test_a_missing_cookie_is_named(server: Served) -> None:
    assert "Cluster Cookie not found" in server.get("/nodes").json["msg"]
    answer = server.get("/api/v0/tasks", {"Cookie": "cluster_name=demo"})
    assert answer.status == 400
    assert "RayCluster Session Name Cookie not found" in answer.json["msg"]


def test_cookies_are_renewed_before_they_expire(server: Served) -> None:
    entered = cookies(server, "/enter_cluster/default/demo/latest")["Cookie"]
    new = server.get("/api/v0/nodes", {"Cookie": entered})
    assert "set-cookie" not in new.headers, "it could lead a tab back that entered another session meanwhile"
    names, _, renewed = entered.partition("; session_renewed=")
    for others in (
        "",
        f"; session_renewed={int(renewed) - 301}",
        f"; session_renewed={int(renewed) + 999}",
        "; session_renewed=x",
    ):
        again = server.get("/api/v0/nodes", {"Cookie": names + others})
        assert again.status == 200
        assert "max-age=600" in again.headers["set-cookie"].lower(), others


def test_the_dashboards_page_and_files_are_served(server: Served) -> None:
    page = server.get(f"{S}/")
    assert page.status == 200
    assert page.headers["cache-control"] == "no-store"
    name = page.body.decode().split('src="./')[1].split('"')[0]
    script = server.get(f"{S}/{name}")
    assert script.status == 200
    assert "immutable" in script.headers["cache-control"]
    assert script.headers["content-type"].startswith(("text/javascript", "application/javascript"))


def test_an_unknown_dashboard_version_is_refused_with_the_installed_ones(server: Served) -> None:
    answer = server.get(f"{S}/?dashboard=1.0")
    assert answer.status == 404
    assert "available: " in answer.json["msg"]


def test_an_unknown_api_path_is_no_404_through_rays_proxy_which_would_answer_itself(server: Served) -> None:
    assert server.get(f"{S}/api/nothing").status == 404
    assert server.get(f"{S}/api/nothing", {"Content-Type": "application/json"}).status == 410


def test_health_needs_no_session(server: Served) -> None:
    assert [server.get(path).body for path in ("/livez", "/readz", "/healthz")] == [b"ok"] * 3


def test_the_history_tab_of_kuberays_dashboard_works(server: Served) -> None:
    """Its calls: the list, three parts to enter, and listings by cookie, of tasks without `detail`."""
    (row,) = [row for row in server.get("/clusters").json if row["name"] == "demo"]
    entered = cookies(server, f"/enter_cluster/{row['namespace']}/{row['name']}/{row['sessionName']}")
    nodes = server.get("/nodes?view=summary", entered).json["data"]["summary"]
    assert len(nodes) == 2
    result = server.get("/api/v0/tasks", entered).json["data"]["result"]
    assert result["total"] > len(result["result"]) == 100
    assert all(task["task_id"] and task["name"] and task["state"] for task in result["result"])
    head = next(node["raylet"]["nodeId"] for node in nodes if node["raylet"]["isHeadNode"])
    files = [
        name
        for names in server.get(f"/api/v0/logs?node_id={head}", entered).json["data"]["result"].values()
        for name in names
    ]
    assert "gcs_server.out" in files
    log = server.get(f"/api/v0/logs/file?node_id={head}&filename=gcs_server.out&lines=5", entered)
    assert log.status == 200
    assert log.body
