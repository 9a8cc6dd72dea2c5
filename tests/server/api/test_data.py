"""Datasets of Ray Data."""

from __future__ import annotations

import pytest

from tests.server.api.captured_archives import ask, differences
from tests.server.serving import Served
from tests.support.captured import captured

pytestmark = pytest.mark.xdist_group("captured archives")


def test_without_polling_datasets_are_rebuilt_from_export_files(open_server: Served) -> None:
    truth = captured().truth
    found = ask(open_server, "unpolled", "/api/data/datasets/07000000?raw=1").json
    paths = {path.rpartition(".")[2] for path, _, _ in differences(truth["data_datasets_07000000"], found)}
    assert paths == {"progress", "total", "total_rows", "queued_blocks", "end_time"}  # export files hold no counts
    assert [row["dataset"] for row in found["datasets"]] == [
        row["dataset"] for row in truth["data_datasets_07000000"]["datasets"]
    ]


def test_an_unknown_job_has_no_datasets(server: Served) -> None:
    assert ask(server, "whole", "/api/data/datasets/nobody").json == {"datasets": []}
