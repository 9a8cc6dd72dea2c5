"""Files that the collector saves: whole, and what they were when they were saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_history.collector.saved_file import DamagedFile, load, save


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    for content in (b"{}", b"", b"two\nlines\n", bytes(range(256))):
        save(tmp_path / "file", content)
        assert load(tmp_path / "file") == content
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_any_flipped_bit_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    save(file, b'{"sent":1234,"node":"0a"}')
    whole = file.read_bytes()
    for place in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            file.write_bytes(damaged)
            try:
                content = load(file)
            except DamagedFile:
                continue
            assert content == bytes(damaged), "the checksum is not recognised, and what follows the JSON is an error"


def test_files_of_earlier_versions_have_no_checksum(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b'{"sent":1}')
    assert load(tmp_path / "file") == b'{"sent":1}'


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "file")
