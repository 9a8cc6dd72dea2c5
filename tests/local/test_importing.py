"""`ray-history import`: session directories of clusters that nobody recorded, as directories and in tar files."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from ray_history.local import unpack as unpacking
from ray_history.local.unpack import CannotUnpack, unpack
from tests.cli.installed import run
from tests.local.raylets import raylet
from tests.server.serving import served
from tests.support.captured import captured

SESSION = captured().session
NODES = sorted({node for node, _ in captured().logs})


def write_directories(root: Path) -> list[Path]:
    """The session directory of each node of a real cluster, as Ray leaves it; that of the head last."""
    found = []
    for node in NODES:
        directory = root / node[:8] / SESSION
        for (of, name), body in captured().logs.items():
            if of == node:
                (directory / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
                (directory / "logs" / name).write_bytes(body)
        found.append(directory)
    return sorted(found, key=lambda directory: (directory / "logs" / "gcs_server.out").exists())


def test_the_directories_of_all_nodes_become_one_session(tmp_path: Path) -> None:
    directories = write_directories(tmp_path / "left")
    tar = tmp_path / "left.tar.gz"
    with tarfile.open(tar, "w:gz") as archive:
        archive.add(directories[0], f"nodes/first/{SESSION}")
    archive_url = (tmp_path / "archive").as_uri()
    done = run("import", "--storage", archive_url, str(tar), *map(str, directories[1:]))
    assert done.returncode == 0, done.stderr
    assert "Their tasks are unknown" in done.stdout
    assert f"/s/default/imported/{SESSION}/_session" in done.stdout
    again = run("import", "--storage", archive_url, str(directories[-1]))
    assert "stored before" in again.stdout
    with served(open_store(DirectorySettings(tmp_path / "archive")), tmp_path / "cache") as server:
        prefix = f"/s/default/imported/{SESSION}"
        assert sorted(row["node_id"] for row in server.get(f"{prefix}/api/v0/nodes").rows) == NODES
        for (node, name), body in captured().logs.items():
            if name in ("raylet.out", "gcs_server.out"):
                log = server.get(f"{prefix}/api/v0/logs/file?node_id={node}&filename={name}&lines=-1&format=leading_0")
                assert log.status == 200
                assert body.splitlines()[0] in log.body
        account = server.get(f"{prefix}/_completeness").json
        assert (account["state"], account["completeness"]["state"]) == ("ended", "nothing recorded")
        page = server.get(f"{prefix}/_session").body.decode()
        assert "Tasks were not recorded." in page, "what is unknown does not look like success"
        assert server.get(f"{prefix}/api/v0/tasks").rows == []


def test_what_is_no_dead_session_is_refused(tmp_path: Path, sessions: list[Path]) -> None:
    def refused(path: Path) -> str:
        done = run("import", "--storage", (tmp_path / "archive").as_uri(), str(path))
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr

    (tmp_path / "file").write_text("no tar file")
    (tmp_path / "other" / "logs").mkdir(parents=True)
    assert "truncated header" in refused(tmp_path / "file")
    assert "it has no logs" in refused(tmp_path)
    assert "is not named like a session" in refused(tmp_path / "other")
    assert "no file in it has the id of its node" in refused(sessions[0])
    with raylet(sessions[0]):
        assert "is in use by a running Ray: record it with `ray-history attach`" in refused(sessions[0])


def tar_file(path: Path, *members: tuple[str, bytes | str], mode: str = "w:gz") -> Path:
    """A tar file; a member with a text is a link to it."""
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_hostile_tar_file_writes_nothing_elsewhere(tmp_path: Path) -> None:
    good = f"{SESSION}/logs/raylet.out"
    file = tar_file(
        tmp_path / "hostile.tgz",
        (f"{SESSION}/../../escaped", b"x"),
        (f"/{SESSION}/logs/absolute", b"inside"),
        (f"../{SESSION}/logs/above", b"inside"),
        (f"{SESSION}/logs/link", str(tmp_path / "target")),
        (f"{SESSION}/logs/link/below", b"inside"),
        (good, b"one line\n"),
        ("elsewhere/file", b"x"),
    )
    into = tmp_path / "into"
    directories = unpack(file, into, 1 << 20)
    assert {directory.name for directory in directories} == {SESSION}
    assert sorted({path.name for path in tmp_path.iterdir()}) == ["hostile.tgz", "into"]
    assert sorted(files_below(into).values()) == [b"inside", b"inside", b"inside", b"one line\n"]
    assert not any(path.is_symlink() for path in into.rglob("*"))


def bomb(path: Path) -> Path:
    return tar_file(path, (f"{SESSION}/logs/zeros", bytes(4 << 20)))


def torn(path: Path) -> Path:
    whole = bomb(path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return path


@pytest.mark.parametrize(("make", "message"), [(bomb, "more than 1 MiB"), (torn, "file.tgz: ")])
def test_a_tar_file_that_is_too_large_or_torn_is_refused(
    tmp_path: Path, make: Callable[[Path], Path], message: str
) -> None:
    with pytest.raises(CannotUnpack, match=message):
        unpack(make(tmp_path / "file.tgz"), tmp_path / "into", 1 << 20)
    assert sum(map(len, files_below(tmp_path / "into").values())) <= 3 << 20


def test_the_number_of_files_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_FILES", 2)
    members = [(f"{SESSION}/logs/{number}", b"x") for number in range(3)]
    with pytest.raises(CannotUnpack, match="more than 2 files"):
        unpack(tar_file(tmp_path / "file.tar", *members, mode="w:"), tmp_path / "into", 1 << 20)
