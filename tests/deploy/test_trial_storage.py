"""The S3 server of the chart for evaluation: its arguments are run with the real program."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_history.archive.errors import ArchiveError, Denied
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import open_store
from tests.deploy.documents import CHART, containers
from tests.deploy.test_chart import one, render, values_of
from tests.support.fixtures import skip_or_fail
from tests.support.processes import PartUnavailable, Process, free_ports
from tests.support.seaweedfs import weed_binary

LISTENERS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "admin.port",
    "admin.port.grpc",
)
"""In a pod each has its default port, which may be in use here."""


def test_it_has_the_bucket_and_accepts_only_its_keys(tmp_path: Path) -> None:
    rendered = render(values_of(CHART / "examples" / "trial.yaml"))
    (container,) = containers(one(rendered, "Deployment", "ray-history-s3"))
    keys = one(rendered, "Secret", "ray-history-s3")["stringData"]
    config = one(rendered, "ConfigMap", "ray-history-storage")["data"]
    port, grpc, *others = free_ports(2 + len(LISTENERS))
    arguments = [
        *(argument for argument in container["args"] if not argument.startswith(("-dir=", "-s3.port=", "-ip."))),
        *(f"-dir={tmp_path}", f"-s3.port={port}", f"-s3.port.grpc={grpc}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
        *(f"-{name}={number}" for name, number in zip(LISTENERS, others, strict=True)),
    ]
    variables = {**config, **keys, "S3_ENDPOINT": f"http://127.0.0.1:{port}"}
    store = open_store(resolve(None, Upstream(), variables))

    def ready() -> bool:
        try:
            store.check()
        except ArchiveError:
            return False
        return True

    try:
        program = weed_binary()
    except PartUnavailable as reason:
        skip_or_fail("SeaweedFS", reason)
    env = {"AWS_ACCESS_KEY_ID": keys["AWS_ACCESS_KEY_ID"], "AWS_SECRET_ACCESS_KEY": keys["AWS_SECRET_ACCESS_KEY"]}
    with Process([program, *arguments], log=tmp_path / "log", ready=ready, env=env, cwd=tmp_path, start_seconds=90):
        store.put("history/object", b"kept")
        assert store.get("history/object") == b"kept"
        stranger = open_store(resolve(None, Upstream(), {**variables, "AWS_SECRET_ACCESS_KEY": "other"}))
        with pytest.raises(Denied):
            stranger.check()


def test_every_release_gets_its_own_key() -> None:
    values = values_of(CHART / "examples" / "trial.yaml")
    made = {one(render(values), "Secret", "ray-history-s3")["stringData"]["AWS_SECRET_ACCESS_KEY"] for _ in range(3)}
    assert len(made) == 3
    assert {len(key) for key in made} == {32}
