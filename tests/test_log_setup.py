"""Log lines as text and as JSON, and which loggers may speak."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator

import pytest

from ray_history.log_setup import FORMATS, LEVELS, LogSettings, configure_logging

NAMES = ("", "ray_history", "azure")


@pytest.fixture(autouse=True)
def former_loggers() -> Iterator[None]:
    """Put back what other tests log with."""
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        logger.handlers[:] = handlers


def fail() -> None:
    try:
        raise ValueError("on purpose")
    except ValueError:
        logging.getLogger("ray_history.index").exception("could not\nbuild %s", "tasks")


def test_a_text_line_has_the_time_the_level_and_the_module(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogSettings("info", "text"))
    logging.getLogger("ray_history.server.app").info("listening on %s", "127.0.0.1:8080")
    line = capsys.readouterr().err
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert re.fullmatch(rf"{stamp} info    server\.app: listening on 127\.0\.0\.1:8080\n", line)


def test_a_message_stays_on_one_line_and_its_traceback_follows(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogSettings("info", "text"))
    fail()
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.endswith("error   index: could not build tasks")
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: on purpose"


def test_a_json_line_is_one_object_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogSettings("info", "json"))
    logging.getLogger("ray_history.index").warning("slow: %d s", 7)
    fail()
    slow, failed = map(json.loads, capsys.readouterr().err.splitlines())
    assert slow.pop("time").endswith("Z")
    assert slow == {"level": "warning", "logger": "ray_history.index", "message": "slow: 7 s"}
    assert failed["message"] == "could not\nbuild tasks"
    assert failed["exception"].endswith("ValueError: on purpose")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("form", FORMATS)
def test_lines_below_the_level_are_left_out(level: str, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogSettings(level, form))
    for each in LEVELS:
        logging.getLogger("ray_history").log(getattr(logging, each.upper()), each)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(LEVELS) - LEVELS.index(level)


def test_libraries_only_report_errors_and_azure_not_even_those(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogSettings("debug", "text"))
    for name in ("uvicorn", "azure.identity"):
        logging.getLogger(name).warning("a warning")
        logging.getLogger(name).error("an error of %s", name)
    assert [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()] == ["an error of uvicorn"]


def test_a_second_call_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(LogSettings("info", "text"))
    configure_logging(LogSettings("info", "json"))
    logging.getLogger("ray_history").info("once")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "once"
