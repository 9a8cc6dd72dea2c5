"""Lines of logs: colours of terminals, levels, progress bars, and the marks of Ray."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.server.logs.windows import Line
from ray_history.server.ui.log.lines import MOST_CHARACTERS, Level, Segment, level_of, shown


def segments(text: str) -> list[tuple[str, str]]:
    return [(each.text, each.style) for each in shown(Line(0, text.encode()), 1).segments]


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("2026-11-15 20:57:15,332 ERROR worker.py:409 -- lost", "error"),
        ("[2026-11-15 20:57:15,332 W 918 918] (raylet) node_manager.cc:1: slow", "warn"),
        ("[2026-11-15 20:57:15,332 I 918 918] (raylet) an ERROR that was handled", ""),
        ("[2026-11-15 20:57:15,332 C 918 918] check failed", "error"),
        ("Traceback (most recent call last):", "error"),
        ("ValueError: bad batch", "error"),
        ("ray.exceptions.RayTaskError(ValueError): bad", "error"),
        ("  /app/model.py:118: RuntimeWarning: overflow", "warn"),
        ("DEBUG:root:x", "debug"),
        ("loss 0.1, no errors", ""),
        ("x" * 200 + " ERROR", ""),
        ("", ""),
    ],
)
def test_levels(text: str, level: Level) -> None:
    assert level_of(text) == level


def test_colours_become_styles() -> None:
    assert segments("\x1b[31mred\x1b[0m plain \x1b[1;92mok\x1b[39m bold\x1b[22m end") == [
        ("red", "t-red"),
        (" plain ", ""),
        ("ok", "t-green t-bold"),
        (" bold", "t-bold"),
        (" end", ""),
    ]
    assert segments("\x1b[38;5;196mmany\x1b[m") == [("many", "")]


def test_other_control_characters_are_not_shown() -> None:
    assert segments("\x1b[2K\x1b]0;title\x07a\tb\x00\x1b[?25l") == [("a\tb", "")]


def test_a_progress_bar_is_shown_as_it_ended() -> None:
    line = shown(Line(0, b"10%|#  |\r50%|## |\r100%|###|\r"), 4)
    assert line.segments == (Segment("100%|###|", ""),)
    assert line.note == "the last of 3 states of this line"


def test_marks_of_ray_are_titles() -> None:
    line = shown(Line(0, b":actor_name:Trainer"), 1)
    assert line.is_mark
    assert line.segments == (Segment("actor Trainer", ""),)


def test_a_very_long_line_is_cut() -> None:
    line = shown(Line(0, b"x" * (MOST_CHARACTERS + 1_500)), 1)
    assert len(line.segments[0].text) == MOST_CHARACTERS
    assert line.note == "1,500 more characters: see Raw"


@given(st.binary(max_size=300).map(lambda data: data.replace(b"\n", b"")))
def test_any_bytes_can_be_shown(data: bytes) -> None:
    line = shown(Line(0, data), None)
    assert not any(character < " " and character != "\t" for each in line.segments for character in each.text)
