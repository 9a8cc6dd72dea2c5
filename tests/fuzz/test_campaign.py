"""Long runs: what they count, and that failures leave a reproducer."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fuzz import __main__, campaign
from tests.fuzz.campaign import Outcome
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(campaign, "FOLDER", tmp_path / "fuzz")
    return tmp_path


@pytest.mark.skipif(not campaign.has_coverage(), reason="atheris has no wheel here")
def test_a_guided_run_counts_what_it_reached() -> None:
    outcome = campaign.run(TARGETS["log_names"], 2)
    assert (outcome.failures, outcome.message) == ([], "")
    assert outcome.executions > 100
    assert outcome.edges > 0
    assert outcome.found == len(list((campaign.FOLDER / "log_names").iterdir()))


def test_without_coverage_a_failure_leaves_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_zero(data: bytes) -> None:
        """No zeros."""
        assert b"0" not in data

    monkeypatch.setattr(campaign, "has_coverage", lambda: False)
    target = Target("zeros", refuse_zero, lambda: [b"1"], (b"0",), is_linear=False, examples=1)
    outcome = campaign.run(target, 30)
    assert "AssertionError" in outcome.message
    (file,) = outcome.failures
    assert b"0" in file.read_bytes()
    assert outcome.executions >= 1


def test_a_failure_is_printed_with_the_way_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = {
        "keys": Outcome("keys", 10, 5, 2),
        "names": Outcome("names", 7, 3, 1, [campaign.ROOT / "crash-1"], "ValueError: x"),
    }
    monkeypatch.setattr(__main__, "run", lambda target, _seconds: outcomes[target.name])
    assert __main__.fuzz(["keys"], 1) == 0
    assert __main__.fuzz(["keys", "names"], 1) == 1
    printed = capsys.readouterr().out
    assert "names: ValueError: x\n  python -m tests.fuzz.replay names crash-1" in printed


@pytest.mark.parametrize("command", [("-m", "tests.fuzz", "--help"), ("-m", "tests.fuzz.replay", "--help")])
def test_help_names_the_targets(command: Sequence[str]) -> None:
    done = campaign.subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=campaign.ROOT, check=True
    )
    assert all(name in done.stdout.replace("\n", "").replace(" ", "") for name in TARGETS)
