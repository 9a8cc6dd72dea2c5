"""The manifest: encoding, decoding, and comparison with files."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ray_history.history.facts import Facts
from ray_history.index.manifest import (
    VERSION,
    Damaged,
    IndexFile,
    Manifest,
    OtherVersion,
    SourceFile,
    check,
    decode,
    describe,
    encode,
)

PLAIN = Manifest(
    version=VERSION,
    session="session_1",
    sources=[SourceFile("a", 1, "e")],
    other_sources="",
    files=[IndexFile("tasks.parquet", 3, "0" * 64)],
    rows={"tasks": 3},
    events={"TASK_DEFINITION_EVENT": 3},
    problems=[],
)

sizes = st.integers(0, 2**53 - 1)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
names = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,20}\.parquet\Z")
manifests = st.builds(
    Manifest,
    version=st.just(VERSION),
    session=st.text(),
    sources=st.lists(st.builds(SourceFile, st.text(), sizes, st.text()), max_size=5),
    other_sources=st.text(),
    files=st.lists(
        st.builds(IndexFile, names, sizes, st.from_regex(r"\A[0-9a-f]{64}\Z")),
        max_size=5,
        unique_by=lambda file: file.name,
    ),
    rows=st.dictionaries(st.text(), sizes, max_size=3),
    events=st.dictionaries(st.text(), sizes, max_size=3),
    problems=st.lists(st.text(), max_size=3),
    problem_count=sizes,
    facts=st.builds(Facts, tasks=sizes | st.none(), shutdown=st.text() | st.none()),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(manifests)
def test_a_manifest_survives_encoding(manifest: Manifest) -> None:
    assert decode(encode(manifest)) == manifest


@given(manifests, st.data())
def test_a_truncated_manifest_is_damaged(manifest: Manifest, data: st.DataObject) -> None:
    body = encode(manifest)
    with pytest.raises(Damaged):
        decode(body[: data.draw(st.integers(0, len(body) - 1))])


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_garbage_is_damaged_and_nothing_else(body: bytes) -> None:
    with pytest.raises(Damaged):
        decode(body)


@given(st.data())
def test_a_manifest_with_any_bytes_changed_is_read_or_damaged(data: st.DataObject) -> None:
    body = bytearray(encode(PLAIN))
    for at in data.draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=3)):
        body[at] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(body))
    except Damaged:
        return


@pytest.mark.parametrize(
    "name",
    ["../tasks.parquet", "/etc/tasks.parquet", "a/b.parquet", ".parquet", "tasks.parquet\n", "manifest.json", "", "..",
     "a\0.parquet", "x" * 200 + ".parquet"],
)  # fmt: skip
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    body = json.loads(encode(PLAIN))
    body["files"][0]["name"] = name
    with pytest.raises(Damaged):
        decode(json.dumps(body).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"files": [{"name": "a.parquet", "size": -1, "digest": "0" * 64}]},
        {"files": [{"name": "a.parquet", "size": 1, "digest": "0" * 31}]},
        {"files": [{"name": "a.parquet", "size": 1, "digest": "0" * 64}] * 2},
        {"sources": None},
        {"rows": {"tasks": "3"}},
        {"rows": {"tasks": -1}},
        {"problem_count": 2**53},
        {"problems": ["x" * 10_001]},
        {"problems": ["x"] * 1001},
        {"session": "x" * 1025},
        {"facts": {"nodes": "abc"}},
        {"facts": {"start_ns": 1}},
        {"facts": {"last_ns": 253402300799 * 10**9}},
        {"version": "1"},
        {"version": None},
    ],
)
def test_a_wrong_field_is_damaged(change: dict[str, object]) -> None:
    with pytest.raises(Damaged):
        decode(json.dumps({**json.loads(encode(PLAIN)), **change}).encode())


@pytest.mark.parametrize("value", [b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b"9" * 10_000 + b"x"])
def test_deep_nesting_and_huge_numbers_are_damaged(value: bytes) -> None:
    body = encode(PLAIN).replace(b'"tasks":null', b'"tasks":' + value)
    with pytest.raises(Damaged):
        decode(body)


def test_unknown_fields_are_ignored() -> None:
    assert decode(json.dumps({**json.loads(encode(PLAIN)), "later": [1]}).encode()) == PLAIN


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_another_version_is_recognized_whatever_its_content(version: int) -> None:
    with pytest.raises(OtherVersion, match=f"version {version}") as caught:
        decode(json.dumps({"version": version, "files": "shaped differently"}).encode())
    assert caught.value.version == version


def write_files(directory: Path) -> Manifest:
    (directory / "empty.parquet").write_bytes(b"")
    (directory / "small.parquet").write_bytes(b"abc")
    (directory / "large.parquet").write_bytes(os.urandom(3_000_000))
    described = describe(directory, ["small.parquet", "empty.parquet", "large.parquet"])
    return msgspec.structs.replace(PLAIN, files=described)


def test_files_are_described_in_the_given_order(tmp_path: Path) -> None:
    manifest = write_files(tmp_path)
    assert [(file.name, file.size) for file in manifest.files] == [
        ("small.parquet", 3),
        ("empty.parquet", 0),
        ("large.parquet", 3_000_000),
    ]
    assert manifest.files[0].digest == hashlib.sha256(b"abc").hexdigest()
    check(tmp_path, manifest)
    check(tmp_path, manifest, deep=True)


def test_a_file_missing_or_of_another_size_is_found_without_reading(tmp_path: Path) -> None:
    manifest = write_files(tmp_path)
    with (tmp_path / "large.parquet").open("ab") as file:
        file.truncate(2_999_999)
    with pytest.raises(Damaged, match="2999999 bytes instead of 3000000"):
        check(tmp_path, manifest)
    (tmp_path / "large.parquet").unlink()
    with pytest.raises(Damaged, match=r"large\.parquet"):
        check(tmp_path, manifest)


def test_one_bit_is_found_by_reading(tmp_path: Path) -> None:
    manifest = write_files(tmp_path)
    body = bytearray((tmp_path / "large.parquet").read_bytes())
    body[1_234_567] ^= 1
    (tmp_path / "large.parquet").write_bytes(body)
    check(tmp_path, manifest)
    with pytest.raises(Damaged, match=r"large\.parquet"):
        check(tmp_path, manifest, deep=True)
