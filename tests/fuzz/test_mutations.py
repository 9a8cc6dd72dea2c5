"""Mutations are the same for the same seed, and reach values inside JSON."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from tests.fuzz.mutations import mutated, mutated_json, pumped
from tests.fuzz.target import read_corpus, write_corpus


def test_the_same_seed_gives_the_same_inputs() -> None:
    first, again = (
        [mutated(b'{"a": [1, 2]}', [b"other"], [b"word"], random, 100) for _ in range(50)]
        for random in (Random(7), Random(7))
    )
    assert first == again
    assert len(set(first)) > 40
    assert all(len(data) <= 100 for data in first)


def test_values_inside_json_are_changed() -> None:
    random, value = Random(1), {"a": {"b": [1, {"c": 2}]}, "d": "x"}
    changed = [mutated_json(json.dumps(value).encode(), random) for _ in range(300)]
    decoded = [json.loads(data) for data in changed if data is not None]
    assert len(decoded) == 300
    assert any(isinstance(each, dict) and each.get("a") == {"b": [1]} for each in decoded)
    assert any(isinstance(each, dict) and "d" not in each for each in decoded)
    assert mutated_json(b"no json", random) is None


def test_a_repeatable_part_is_never_empty() -> None:
    for number in range(100):
        before, part, after = pumped(b"abc", Random(number))
        assert part
        assert before + part + after == b"abc" or before == b"abc"


def test_a_corpus_is_read_as_it_was_written(tmp_path: Path) -> None:
    inputs = [b"", b"\n\r\x00", bytes(range(256)), b"'\""]
    write_corpus(tmp_path / "corpus" / "x.txt", inputs)
    assert read_corpus(tmp_path / "corpus" / "x.txt") == inputs
    assert read_corpus(tmp_path / "none.txt") == []
