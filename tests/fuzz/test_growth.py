"""Growth is recognized, whatever the machine does meanwhile."""

from __future__ import annotations

import pytest

from tests.fuzz.growth import NotLinear, assert_linear


def test_linear_time_passes() -> None:
    assert_linear(lambda data: [data.count(b"b") for _ in range(2000)], lambda size: b"a" * size)


def test_quadratic_time_is_found() -> None:
    with pytest.raises(NotLinear, match="bytes take"):
        assert_linear(lambda data: [data.count(b"b") for _ in range(len(data) // 8)], lambda size: b"a" * size)
