"""Runs of Ray Train."""

from __future__ import annotations

from typing import Any

import pytest

from ray_history.server.api.train import RunSettings
from tests.server.api.captured_archives import ask, differences
from tests.server.serving import Served
from tests.support.captured import captured

pytestmark = pytest.mark.xdist_group("captured archives")


def test_without_polling_runs_are_rebuilt_from_export_files(open_server: Served) -> None:
    truth = captured().truth
    runs = ask(open_server, "unpolled", "/api/train/v2/runs/v1?raw=1").json
    assert {path for path, _, _ in differences(truth["train_runs_v1"], runs)} == set()


@pytest.mark.parametrize(
    ("scaling_config", "expected"),
    [
        ({"num_workers_fixed": 4}, {"num_workers": 4}),
        ({"num_workers_range": {"min": 1, "max": 8}}, {"num_workers": [1, 8]}),
        ({}, {"num_workers": [None, None], "use_gpu": False, "bundle_label_selector": None}),
        ({"use_gpu": True, "resources_per_worker": {"values": {"CPU": 2}}}, {"resources_per_worker": {"CPU": 2}}),
        ({"label_selector_single": {"values": {"zone": "a"}}}, {"bundle_label_selector": {"zone": "a"}}),
        (
            {"label_selector_list": {"values": [{"values": {"zone": "a"}}, {"values": {}}, 3]}},
            {"bundle_label_selector": [{"zone": "a"}, {}]},
        ),
        ("text", {"num_workers": [None, None]}),
    ],
)
def test_unions_of_export_files_become_plain_values(scaling_config: Any, expected: dict[str, Any]) -> None:
    settings = RunSettings(scaling_config=scaling_config).for_dashboard()
    assert settings["scaling_config"].items() >= expected.items()


def test_settings_of_the_wrong_type_count_as_absent() -> None:
    settings = RunSettings(backend_config=[], data_config=3, run_config="x").for_dashboard()
    assert settings == RunSettings().for_dashboard()
