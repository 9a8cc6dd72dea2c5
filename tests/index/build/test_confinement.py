"""What a confined process can still do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ray_history.index.build import confinement
from ray_history.index.build.confinement import why_unconfined

PROGRAM = """
import ctypes, os, socket, subprocess, sys
from pathlib import Path
from ray_history.index.build.confinement import confine

inside, outside = Path(sys.argv[1]), Path(sys.argv[2])
confine(inside)
exec(sys.argv[3])
"""
needs_landlock = pytest.mark.skipif(bool(why_unconfined()), reason=why_unconfined())


def confined(tmp_path: Path, statement: str) -> str:
    """Run a statement in a confined process; returns the error that ends it, or what it prints."""
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / "outside" / "file").write_text("outside")
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "inside"), str(tmp_path / "outside"), statement],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return run.stdout.strip() or run.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize(
    "statement",
    [
        "(outside / 'new').write_text('x')",
        "(outside / 'file').write_text('x')",
        "os.truncate(outside / 'file', 0)",
        "(outside / 'file').unlink()",
        "(outside / 'new').mkdir()",
        "os.link(outside / 'file', inside / 'link')",
        "(outside / 'file').rename(inside / 'file')",
        "(inside / 'link').symlink_to(outside / 'file')",
        "os.mkfifo(inside / 'pipe')",
        "subprocess.run(['touch', outside / 'new'], check=True)",
        "open(f'/proc/{os.getppid()}/mem', 'rb')",
    ],
)
@needs_landlock
def test_it_changes_nothing_outside(tmp_path: Path, statement: str) -> None:
    error = confined(tmp_path, statement)
    assert error.startswith(("PermissionError: ", "OSError: [Errno 18] ", "subprocess.CalledProcessError: ")), error
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["file"]
    assert (tmp_path / "outside" / "file").read_text() == "outside"


@pytest.mark.parametrize(
    ("statement", "version"),
    [
        ("socket.create_server(('127.0.0.1', 0))", 4),
        ("os.kill(os.getppid(), 0)", 6),
        ("socket.socket(socket.AF_UNIX).connect('\\0ray-history-test')", 6),
    ],
)
@needs_landlock
def test_it_reaches_no_other_process(tmp_path: Path, statement: str, version: int) -> None:
    if confinement._version() < version:
        pytest.skip(f"the kernel has version {confinement._version()} of Landlock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0ray-history-test")
        listener.listen()
        assert confined(tmp_path, statement).startswith("PermissionError")


@pytest.mark.parametrize(
    "statement",
    [
        "(inside / 'new').write_text('x')",
        "(inside / 'a').mkdir(); (inside / 'a/b').touch(); (inside / 'a/b').rename(inside / 'b')",
        "(inside / 'a').mkdir(); (inside / 'a').rmdir(); (inside / 'b').touch(); (inside / 'b').unlink()",
        "(outside / 'file').read_text()",
        "subprocess.run(['true'], check=True, stdout=subprocess.DEVNULL)",
    ],
)
def test_it_does_its_work(tmp_path: Path, statement: str) -> None:
    assert confined(tmp_path, f"{statement}; print('done')") == "done"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_its_programs_gain_no_privileges(tmp_path: Path) -> None:
    assert "NoNewPrivs:\t1" in confined(tmp_path, "print(Path('/proc/self/status').read_text())")


def test_where_the_kernel_cannot_it_goes_on(tmp_path: Path) -> None:
    without = "confinement._version = lambda: 0; confinement.confine(inside); (outside / 'new').touch(); print('done')"
    program = PROGRAM.replace("confine(inside)\n", "from ray_history.index.build import confinement\n")
    for name in ("inside", "outside"):
        (tmp_path / name).mkdir()
    command = [sys.executable, "-c", program, str(tmp_path / "inside"), str(tmp_path / "outside"), without]
    assert subprocess.run(command, stdout=subprocess.PIPE, check=True, env=os.environ).stdout == b"done\n"
