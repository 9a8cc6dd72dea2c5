"""Resources as users requested them, and Ray's text about them."""

from __future__ import annotations

from collections import defaultdict

import pytest

from ray_history.server.api.resources import Held, requested_resources, resource_lines


@pytest.mark.parametrize(
    ("text", "requested"),
    [
        (None, {}),
        ("{}", {}),
        ('{"CPU": 1.0, "memory": 1024}', {"CPU": 1.0, "memory": 1024}),
        ('{"CPU_group_0_' + "ab" * 18 + '": 2}', {"CPU": 2}),
        ('{"CPU_group_' + "ab" * 18 + '": 2}', {"CPU": 2}),
        ('{"bundle_group_0_' + "ab" * 18 + '": 0.001, "GPU": 1}', {"GPU": 1}),
        ('{"CPU": null, "GPU": "1"}', {"GPU": 1}),
        ("[]", {}),
    ],
)
def test_resources_are_as_the_user_requested_them(text: str | None, requested: dict[str, float]) -> None:
    assert requested_resources(text) == requested


@pytest.mark.parametrize(
    ("total", "used", "lines"),
    [
        ({}, {"CPU": 1}, []),
        ({"GPU": 1.0, "CPU": 4.0}, {"CPU": 1.00004}, ["1.0/4.0 CPU", "0.0/1.0 GPU"]),
        ({"memory": 3 * 2**30}, {}, ["0B/3.00GiB memory"]),
        ({"object_store_memory": 1536}, {"object_store_memory": 1023.9}, ["1023B/1.50KiB object_store_memory"]),
        ({"node:10.0.0.1": 1.0, "accelerator_type:A100": 1.0, "custom": 2.0}, {}, ["0.0/2.0 custom"]),
    ],
)
def test_usage_is_written_as_the_autoscaler_does(
    total: dict[str, float], used: dict[str, float], lines: list[str]
) -> None:
    assert resource_lines(total, Held(defaultdict(float, used))) == lines


def test_what_placement_groups_reserve_is_named() -> None:
    held = Held()
    held.used["GPU"] += 0.25
    held.used_in_groups["GPU"] += 0.25
    held.reserved["GPU"] += 0.5
    held.reserved["memory"] += 2**30
    assert resource_lines({"GPU": 1.0, "memory": 2.0**31}, held) == [
        "0.25/1.0 GPU (0.25 used of 0.5 reserved in placement groups)",
        "0B/2.00GiB memory (0B used of 1.00GiB reserved in placement groups)",
    ]
