"""Settings as dataclass fields."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ray_history.setting import SettingField, setting, settings_of


@dataclass(frozen=True)
class Base:
    port: int = setting(80, "Port.", minimum=1)


@dataclass(frozen=True)
class Example(Base):
    cache_dir: str = setting("/tmp", "Cache.", former=("--old-dir", "OLD_DIR"))
    threads: int = setting(lambda: 3, "Threads.", variable="THREADS", flags=("--threads", "--cores"))
    internal: bool = False


def field(name: str) -> SettingField:
    return next(entry for entry in settings_of(Example) if entry.name == name)


def test_a_class_has_its_own_settings_in_their_order() -> None:
    assert [entry.name for entry in settings_of(Example)] == ["cache_dir", "threads"]
    assert [entry.name for entry in settings_of(Base)] == ["port"]


def test_defaults_are_those_of_the_dataclass() -> None:
    assert Example() == Example(port=80, cache_dir="/tmp", threads=3)


def test_names_are_derived_from_the_field() -> None:
    assert (field("cache_dir").flags, field("cache_dir").variable) == (("--cache-dir",), "RAY_HISTORY_CACHE_DIR")
    assert (field("threads").flags, field("threads").variable) == (("--threads", "--cores"), "THREADS")


def test_former_names_are_flags_or_variables() -> None:
    assert (field("cache_dir").former_flags, field("cache_dir").former_variables) == (("--old-dir",), ("OLD_DIR",))


def test_unknown_details_are_refused() -> None:
    with pytest.raises(TypeError):
        setting(1, "Help.", minimal=1)
