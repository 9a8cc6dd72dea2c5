"""Commit subjects, good and bad ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.commit_subjects import main, problems, subject_of


@pytest.mark.parametrize(
    "subject",
    [
        "Add a glossary",
        "Process events in order",
        "Address review comments",
        "Embed the dashboard",
        "Bring back `at=`",
        "Focus the search field",
        "Discuss costs in docs/performance.md: PUTs, LISTs",
        'Revert "Add a glossary"',
        "x".upper() * 72,
    ],
)
def test_good_subjects_pass(subject: str) -> None:
    assert list(problems(subject)) == []


@pytest.mark.parametrize(
    ("subject", "part"),
    [
        ("", "empty"),
        ("A" * 73, "73 characters"),
        ("Tests: run them twice", "tag"),
        ("feat(server)!: add a route", "tag"),
        ("add a glossary", "small letter"),
        ("Add a glossary.", "full stop"),
        ("Added a glossary", "imperative"),
        ("Adds a glossary", "imperative"),
        ("Adding a glossary", "imperative"),
    ],
)
def test_bad_subjects_are_refused(subject: str, part: str) -> None:
    assert any(part in problem for problem in problems(subject))


def test_comments_of_the_editor_are_not_the_subject() -> None:
    assert subject_of("# Please enter the message\n\nAdd a glossary\n\nBody.\n") == "Add a glossary"


def test_a_message_is_checked_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("Added a glossary\n")
    assert main(["--message", str(message)]) == 1
    assert "not an imperative" in capsys.readouterr().err
    message.write_text("Add a glossary\n\nMore about it.\n")
    assert main(["--message", str(message)]) == 0


def test_a_range_of_commits_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    for subject in ("Add one", "Add two", "wrong"):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "--no-verify", "-m", subject], check=True)
    assert main(["HEAD~2..HEAD~1"]) == 0
    assert main(["HEAD~1..HEAD"]) == 1
