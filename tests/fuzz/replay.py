"""Call a target with the content of a file: `python -m tests.fuzz.replay NAME FILE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz.target import read_corpus, write_corpus
from tests.fuzz.targets import TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=TARGETS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--keep", action="store_true", help="add it to the corpus, so that it is a test from now on")
    arguments = parser.parse_args()
    target, data = TARGETS[arguments.name], arguments.file.read_bytes()
    if arguments.keep:
        write_corpus(target.corpus, [*read_corpus(target.corpus), data])
    sys.stdout.write(f"{data!r}\n")
    target.check(data)
    target.grow(data)


if __name__ == "__main__":
    main()
