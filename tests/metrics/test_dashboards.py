"""Stored dashboards are those that Ray wrote, or are refused."""

from __future__ import annotations

import json

import pytest

from ray_history.metrics import dashboards
from ray_history.metrics.dashboards import FILE_SUFFIX, InvalidDashboards, pack, unpack
from ray_history.zstandard import zstd
from tests.metrics.dashboards import VERSIONS
from tests.metrics.dashboards import dashboards as captured


@pytest.mark.parametrize("version", VERSIONS)
def test_dashboards_of_ray_are_read_again(version: str) -> None:
    written = captured(version)
    read = unpack(pack({file: json.dumps(content, indent=4).encode() for file, content in written.items()}))
    assert {each.name + FILE_SUFFIX: json.loads(each.definition) for each in read} == written
    assert {each.uid for each in read} == {content["uid"] for content in written.values()}


def test_the_object_is_small_and_always_the_same() -> None:
    files = {file: json.dumps(content).encode() for file, content in captured("2.60").items()}
    packed = pack(files)
    assert pack(dict(reversed(files.items()))) == packed
    assert len(packed) < 50_000


FILE = f"default{FILE_SUFFIX}"


@pytest.mark.parametrize(
    "files",
    [
        {FILE: b""},
        {FILE: b'{"uid": "a", "panels": ['},
        {FILE: b'{"panels": []}'},
        {FILE: b'{"uid": ""}'},
        {FILE: b'{"uid": 1}'},
        {FILE: b'{"uid": "a"} {}'},
        {FILE: b'{"uid": "a", "title": "\xff"}'},
        {FILE: b'{"uid": "a", "panels": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"},
        {FILE: b'{"uid": "a", "title": "' + b"x" * dashboards.MAX_BYTES + b'"}'},
        {"../default" + FILE_SUFFIX: b'{"uid": "a"}'},
        {"default.json": b'{"uid": "a"}'},
        {f"{number}{FILE_SUFFIX}": b'{"uid": "a"}' for number in range(dashboards.MAX_FILES + 1)},
    ],
)
def test_files_that_are_no_dashboards_are_refused(files: dict[str, bytes]) -> None:
    with pytest.raises(InvalidDashboards):
        pack(files)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        zstd.compress(b"[]"),
        zstd.compress(b'{"default_grafana_dashboard.json": 1}'),
        zstd.compress(b'{"default_grafana_dashboard.json": {"uid": "\\ud800"}}'),
        zstd.compress(bytes(200 << 20)),
        pack({FILE: b'{"uid": "a"}'})[:-3],
    ],
)
def test_objects_that_are_no_dashboards_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidDashboards):
        unpack(data)
