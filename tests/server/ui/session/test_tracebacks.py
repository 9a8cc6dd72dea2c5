"""Error texts from Ray: their decisive line, their message, and what is cut off."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_history.server.ui.session.tracebacks import MARK, NOT_COMPUTED, RAISED, parse_traceback
from tests.server.ui.written_sessions import of_input, raised, waited

LOG_TAIL = """Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):
Traceback (most recent call last):
  File "job.py", line 1, in <module>
    main()
RuntimeError: no data
"""


@pytest.mark.parametrize(
    ("text", "decisive", "message"),
    [
        (raised("f"), "ValueError: x", "x"),
        (raised("f", "app.errors.Boom: it\nsecond: line"), "app.errors.Boom: it", "it"),
        (raised("f", "KeyboardInterrupt"), "KeyboardInterrupt", "KeyboardInterrupt"),
        (waited("g", raised("f")), "ValueError: x", "x"),
        (of_input("g", raised("f", "KeyError: 'k'")), "KeyError: 'k'", "'k'"),
        (LOG_TAIL, "RuntimeError: no data", "no data"),
        ("Task was killed.\nMore.", "Task was killed.", "Task was killed."),
        ("Traceback (most recent call last):\n\nonly this", "only this", "only this"),
        ("", "", ""),
        ("\n\n", "", ""),
    ],
)
def test_the_decisive_line_names_the_exception(text: str, decisive: str, message: str) -> None:
    trace = parse_traceback(text)
    assert (trace.decisive_line, trace.message) == (decisive, message)


def test_colours_are_removed_and_a_long_text_keeps_its_end() -> None:
    trace = parse_traceback("\n".join(f'  File "x", line {n}' for n in range(500)) + "\n\x1b[31mValueError\x1b[0m: red")
    assert trace.decisive_line == "ValueError: red"
    assert trace.lines_before == 501 - len(trace.lines)


def test_a_long_line_is_cut() -> None:
    assert len(parse_traceback("ValueError: " + "x" * 10_000).lines[0]) == 2000


@given(st.text(max_size=400))
def test_any_text_has_a_decisive_line(text: str) -> None:
    trace = parse_traceback(text)
    assert 0 <= trace.decisive < len(trace.lines)
    assert "\x1b" not in trace.message


@pytest.mark.parametrize(
    ("text", "origin", "exception", "is_of_input"),
    [
        (raised("f"), "f", "ValueError", False),
        (raised("Class.method", "a.b.Error: x"), "Class.method", "a.b.Error", False),
        (waited("g", raised("f")), "f", "ValueError", False),
        (of_input("h", waited("g", raised("f"))), "f", "ValueError", True),
        ("The worker died.", None, None, False),
    ],
)
def test_patterns_find_the_origin_of_an_error(
    text: str, origin: str | None, exception: str | None, is_of_input: bool
) -> None:
    # DuckDB uses the same patterns.
    assert next(iter(re.findall(MARK, text)[::-1]), None) == origin
    assert next(iter(re.findall(RAISED, text)[::-1]), None) == exception
    assert (NOT_COMPUTED in text) is is_of_input
