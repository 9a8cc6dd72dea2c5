"""Checks that commit subjects are imperative and at most 72 characters long.

python -m scripts.commit_subjects --message FILE    one message, as a commit-msg hook
python -m scripts.commit_subjects main..HEAD        all commits of a range
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

MAX_LENGTH = 72
IMPERATIVE_DESPITE_ENDING = {"bring", "embed", "exceed", "feed", "need", "ping", "proceed", "shed", "speed", "string"}
"""Imperatives that end like another form of a verb."""


def problems(subject: str) -> Iterator[str]:
    """What is wrong with a subject; nothing if it is as it should be."""
    first = subject.partition(" ")[0]
    word = first.lower().rstrip(":,")
    if not subject.strip():
        yield "it is empty"
        return
    if len(subject) > MAX_LENGTH:
        yield f"it has {len(subject)} characters, more than {MAX_LENGTH}"
    if re.match(r"[\w.-]+(\([\w./-]+\))?!?:", subject):
        yield f"it starts with a tag ({first!r}); start with a verb"
    elif not first[0].isupper():
        yield "it starts with a small letter"
    if subject.endswith("."):
        yield "it ends with a full stop"
    if word not in IMPERATIVE_DESPITE_ENDING and re.search(r"(ed|ing|[^su]s)$", word):
        yield f"{first!r} is not an imperative: write 'Add', not 'Added', 'Adds' or 'Adding'"


def subject_of(message: str) -> str:
    """The first line of a message that is not a comment."""
    return next((line for line in message.splitlines() if line.strip() and not line.startswith("#")), "")


def subjects_of(commits: str) -> list[str]:
    """The subjects of a range, merges left out."""
    command = ["git", "log", "--no-merges", "--format=%s", commits, "--"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Check commit subjects.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--message", type=Path, metavar="FILE", help="file with one commit message")
    what.add_argument("commits", nargs="?", metavar="RANGE", help="commits, such as main..HEAD")
    options = parser.parse_args(arguments)
    subjects = [subject_of(options.message.read_text())] if options.message else subjects_of(options.commits)
    wrong = [f"{subject!r}: {problem}" for subject in subjects for problem in problems(subject)]
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
