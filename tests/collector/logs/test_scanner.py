"""The walk sees every regular file below the logs directory and nothing else, and descriptors outlive a deletion."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from ray_history.archive.log_tails import portable_path
from ray_history.collector.logs.scanner import MAX_DEPTH, Descriptors, Vanished, disk_path, read_at, walk


def names(root: Path) -> list[str]:
    return sorted(found.name for found in walk(root).files)


def found_at(root: Path, name: str) -> tuple[tuple[int, int], str]:
    found = next(found for found in walk(root).files if found.name == name)
    return found.identity, found.name


def test_files_of_all_folders_are_found_with_size_time_and_identity(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "serve" / "deep").mkdir(parents=True)
    for name in ("raylet.out", "old/worker-1.out", "serve/deep/x.log"):
        (tmp_path / name).write_bytes(name.encode())
    tree = walk(tmp_path)
    assert names(tmp_path) == ["old/worker-1.out", "raylet.out", "serve/deep/x.log"]
    assert tree.unlisted == ()
    status = os.stat(tmp_path / "raylet.out")
    found = next(found for found in tree.files if found.name == "raylet.out")
    assert (found.identity, found.size, found.mtime_ns) == (
        (status.st_dev, status.st_ino),
        len("raylet.out"),
        status.st_mtime_ns,
    )


def test_directories_without_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "serve" / "replicas").mkdir(parents=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.log").write_text("")
    assert sorted(walk(tmp_path).empty) == ["profiles/", "serve/replicas/"]


def test_a_missing_directory_has_no_files(tmp_path: Path) -> None:
    assert walk(tmp_path / "nothing").files == []
    assert walk(tmp_path / "nothing").unlisted == ()


def test_links_sockets_and_pipes_are_left_out(tmp_path: Path) -> None:
    outside = tmp_path / "secrets"
    outside.mkdir()
    (outside / "token").write_text("secret")
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.log").write_text("a")
    (logs / "link.log").symlink_to(outside / "token")
    (logs / "folder").symlink_to(outside)
    os.mkfifo(logs / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(logs / "socket"))
        assert names(logs) == ["a.log"]


def test_names_are_portable_and_lead_back_to_the_file(tmp_path: Path) -> None:
    on_disk = [b"plain.log", b"caf\xc3\xa9.log", b"not-utf8-\xe9.log", b"new\nline.log", b"back\\slash.log", b"\x7f"]
    for name in on_disk:
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_bytes(name)
    assert names(tmp_path) == sorted(portable_path(os.fsdecode(name)) for name in on_disk)
    assert {os.fsencode(disk_path(name)) for name in names(tmp_path)} == set(on_disk)
    descriptors = Descriptors(tmp_path, 10)
    for found in walk(tmp_path).files:
        data = read_at(descriptors.get(found.identity, found.name), 0, 100)
        assert data == os.fsencode(disk_path(found.name))
    descriptors.close_all()


def test_a_folder_that_cannot_be_listed_is_named_and_not_taken_for_empty(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(MAX_DEPTH + 2):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "x.log").write_text("x")
    tree = walk(tmp_path)
    assert tree.files == []
    assert tree.unlisted == ("d/" * (MAX_DEPTH + 1),)


def test_a_folder_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "a.log").write_text("a")
    real = os.open

    def refusing(path: Any, *arguments: Any, **options: Any) -> int:  # root, who may run the tests, is never refused
        if path == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refusing)
    tree = walk(tmp_path)
    assert [found.name for found in tree.files] == ["a.log"]
    assert tree.unlisted == ("closed/",)


def test_a_deleted_file_is_read_to_its_end_through_its_open_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"first")
    identity, name = found_at(tmp_path, "a.log")
    descriptors = Descriptors(tmp_path, 2)
    descriptors.get(identity, name)
    with path.open("ab") as file:
        file.write(b" and last")
    path.unlink()
    assert descriptors.hold(identity)
    assert read_at(descriptors.get(identity, name), 0, 100) == b"first and last"
    descriptors.close(identity)
    with pytest.raises(Vanished):
        descriptors.get(identity, name)


def test_the_number_of_open_files_is_bounded_and_the_last_used_stay_open(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / str(number)).write_text(str(number))
    descriptors = Descriptors(tmp_path, 3)
    before = len(os.listdir("/proc/self/fd"))
    for number in (0, 1, 2, 0, 3, 4):
        descriptors.get(*found_at(tmp_path, str(number)))
    assert len(os.listdir("/proc/self/fd")) == before + 3
    open_now = [n for n in range(5) if descriptors.already_open(found_at(tmp_path, str(n))[0]) is not None]
    assert open_now == [0, 3, 4]
    descriptors.close_all()
    assert len(os.listdir("/proc/self/fd")) == before


def test_another_file_under_the_name_is_not_taken_for_this_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    identity, _ = found_at(tmp_path, "a")
    os.replace(tmp_path / "b", tmp_path / "a")
    descriptors = Descriptors(tmp_path, 3)
    with pytest.raises(Vanished):
        descriptors.get(identity, "a")
    (tmp_path / "a").unlink()
    (tmp_path / "a").symlink_to("/etc/passwd")
    with pytest.raises((Vanished, OSError)):
        descriptors.get(identity, "a")


def test_a_borrowed_descriptor_stays_open_when_the_file_is_no_longer_among_the_last_used(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    descriptors = Descriptors(tmp_path, 1)
    a = found_at(tmp_path, "a")
    descriptors.get(*a)
    with descriptors.borrowed(*a) as descriptor:
        descriptors.get(*found_at(tmp_path, "b"))
        assert read_at(descriptor, 0, 10) == b"a"
    descriptors.close_all()
