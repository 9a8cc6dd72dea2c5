"""The lines by which the demo shows its progress."""

from __future__ import annotations

import re
import sys

import pytest

from ray_history.demo.steps import Steps


def test_a_file_gets_one_line_per_finished_step(capsys: pytest.CaptureFixture[str]) -> None:
    steps = Steps(2)
    with steps.step("Start Ray"):
        pass
    with steps.step("Run jobs") as step:
        step.update("1 of 3")
        step.update("3 of 3")
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"✓ \[1/2\] Start Ray \(\d+ s\)", first)
    assert re.fullmatch(r"✓ \[2/2\] Run jobs: 3 of 3 \(\d+ s\)", second)


def test_a_failed_step_is_marked_and_the_error_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), Steps(7).step("Start Ray"):
        raise KeyboardInterrupt
    assert capsys.readouterr().out.startswith("✗ [1/7] Start Ray (")


def test_a_terminal_shows_the_running_step_in_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with Steps(1).step("Run jobs") as step:
        step.update("1 of 3")
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1, "the line is overwritten until the step ends"
    shown = [re.sub(r"\x1b\[K|\(\d+ s\)", "", part).strip() for part in printed.split("\r") if part]
    assert shown == ["[1/1] Run jobs", "[1/1] Run jobs: 1 of 3", "✓ [1/1] Run jobs: 1 of 3"]
