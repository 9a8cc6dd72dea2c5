"""A stand-in for a container engine that builds a Dockerfile and runs the image with overlays and namespaces.

The instructions are the real ones, run one after the other as root: each stage is an overlay over this machine's root,
with this Python in /usr/local, as in the images of Python. Only the base image is not the real one. The image runs with
a read-only root, a fresh /tmp and cache, as the declared user, without capabilities, and with no variables but the
declared ones.

Needs root and mount namespaces.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .processes import PartUnavailable, Process, ProcessFailed, Ready

_PASSED_ON = re.compile(r"(?i)(pip_|ssl_|requests_ca|https?_proxy|no_proxy).*")
"""Variables that reach the package index; a container engine passes its proxies on, too."""


@dataclass
class Stage:
    """One `FROM` with the instructions that follow it."""

    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        return [rest for each, rest in self.instructions if each == word]

    def last(self, word: str) -> str:
        return self.all(word)[-1]

    def variables(self) -> dict[str, str]:
        return dict(_assignment(text) for rest in self.all("ENV") for text in shlex.split(rest))


def read_dockerfile(path: Path) -> list[Stage]:
    """The stages of a Dockerfile."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    stages: list[Stage] = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(base, name.strip() or "image"))
        elif word and stages:
            stages[-1].instructions.append((word, rest.strip()))
    return stages


class Image:
    """An image, built into a folder."""

    def __init__(self, dockerfile: Path, context: Path, folder: Path, arguments: Mapping[str, str]) -> None:
        self.folder = folder
        self.final = read_dockerfile(dockerfile)[-1]
        self._request = json.dumps([str(dockerfile), str(context), str(folder), dict(arguments)])

    def build(self) -> None:
        if os.geteuid() != 0:
            raise PartUnavailable("only root may mount overlays and become another user")
        for program in ("unshare", "setpriv", "chroot", "mount"):
            if not shutil.which(program):
                raise PartUnavailable(f"the program `{program}` is not installed")
        self._try_an_overlay()
        ran = subprocess.run(
            ["unshare", "--mount", sys.executable, "-m", "tests.support.image", self._request],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if ran.returncode:
            raise ProcessFailed(f"the image could not be built:\n{ran.stdout[-4000:]}")

    def _try_an_overlay(self) -> None:
        for name in ("at", "upper", "work"):
            (self.folder / "try" / name).mkdir(parents=True)
        script = "mount --make-rprivate / && mount -t overlay none -o lowerdir=/,upperdir=upper,workdir=work at"
        command = ["unshare", "--mount", "sh", "-c", script]
        ran = subprocess.run(command, cwd=self.folder / "try", capture_output=True, text=True, check=False)
        if ran.returncode:
            raise PartUnavailable(f"overlays cannot be mounted: {ran.stderr.strip()}")

    def command(
        self, words: Sequence[str], env: Mapping[str, str], writable: Sequence[str], shared: Sequence[Path] = ()
    ) -> list[str]:
        """The command line that runs the image with these arguments; only mounts are writable.

        `writable` folders are mounted empty; `shared` folders of this machine keep their path.
        """
        user, _, group = self.final.last("USER").partition(":")
        image, root = self.folder / self.final.name, self.folder / "running" / "root"
        declared = {"PATH": "/usr/local/bin:/usr/bin:/bin", **self.final.variables(), **env}
        local = f"lowerdir={self.folder}/shims:{sys.base_prefix},upperdir={image}/local,workdir={image}/local-work"
        script = [
            "mount --make-rprivate /",
            f"mount -t tmpfs none {self.folder}/running",
            f"mkdir {root}",
            f"mount -t overlay none -o lowerdir=/,upperdir={image}/upper,workdir={image}/work {root}",
            f"mount -t overlay none -o {local} {root}/usr/local",
            f"mount -t proc none {root}/proc",
            f"mount --bind /dev {root}/dev",
            f"mount -t tmpfs none {root}/tmp",  # the folder of this machine is not part of the image
            *(f"mkdir -p {root}{path}" for path in (*writable, *shared)),
            f"mount -o remount,ro {root}/tmp",
            *(f"mount -t tmpfs -o uid={user},gid={group},mode=755 none {root}{path}" for path in writable),
            *(f"mount --bind {path} {root}{path}" for path in shared),
            f"mount -o remount,ro {root}/usr/local",
            f"mount -o remount,ro {root}",
        ]
        inside = [
            *("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "--no-new-privs"),
            *("--inh-caps=-all", "--bounding-set=-all"),
            *("env", f"--chdir={self.final.last('WORKDIR')}", "-i"),
            *(f"{name}={value}" for name, value in declared.items()),
            *json.loads(self.final.last("ENTRYPOINT")),
            *words,
        ]
        script.append(f"exec chroot {root} {shlex.join(inside)}")
        return ["unshare", "--mount", "sh", "-e", "-c", "\n".join(script)]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(words, {}, ()), capture_output=True, text=True, timeout=120, check=False)

    def process(
        self,
        *words: str,
        log: Path,
        ready: Ready,
        env: Mapping[str, str],
        writable: Sequence[str] = (),
        shared: Sequence[Path] = (),
    ) -> Process:
        """A server in the image; it has a minute to shut down."""
        command = self.command(words, env, writable, shared)
        return Process(command, log=log, ready=ready, start_seconds=90, stop_seconds=60)


def _build(dockerfile: Path, context: Path, folder: Path, arguments: Mapping[str, str]) -> None:
    _mount("--make-rprivate", "/")
    shims = folder / "shims" / "bin"
    shims.mkdir(parents=True)
    (folder / "running").mkdir()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (shims / "pip").write_text('#!/bin/sh\nexec /usr/local/bin/python -m pip "$@"\n')
    (shims / "pip").chmod(0o755)
    (shims / "python").symlink_to(version)
    for stage in read_dockerfile(dockerfile):
        _build_stage(stage, context, folder, arguments)


def _build_stage(stage: Stage, context: Path, folder: Path, arguments: Mapping[str, str]) -> None:
    image = folder / stage.name
    root = image / "root"
    for name in ("root", "upper", "work", "local", "local-work"):
        (image / name).mkdir(parents=True)
    _overlay(root, "/", image / "upper", image / "work")
    _overlay(root / "usr/local", f"{folder}/shims:{sys.base_prefix}", image / "local", image / "local-work")
    _mount("--bind", "/dev", str(root / "dev"))
    for above in Path(sys.base_prefix).parents:  # Python may look for its library where it was built
        inside = root / str(above).lstrip("/")
        inside.chmod(inside.stat().st_mode | 0o011)
    env = {name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)}
    env |= {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    here = "/"
    for word, rest in stage.instructions:
        if word == "ARG":
            name, default = _assignment(shlex.split(rest)[0])
            env[name] = arguments.get(name, default)
        elif word == "ENV":
            env |= dict(_assignment(text) for text in shlex.split(rest))
        elif word == "WORKDIR":
            here = rest
            (root / here.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            _copy(shlex.split(rest), root, here, context, folder)
        elif word == "RUN":
            command = ["chroot", str(root), "/bin/sh", "-c", f"cd {here} && {rest}"]
            subprocess.run(command, env=env, check=True)
        elif word not in ("LABEL", "USER", "EXPOSE", "ENTRYPOINT"):
            raise ValueError(f"{word} is not supported")


def _copy(words: list[str], root: Path, here: str, context: Path, folder: Path) -> None:
    origin = context
    if words[0].startswith("--from="):
        origin = folder / words.pop(0).removeprefix("--from=") / "root"
    *sources, target = words
    into = root / str(Path(here, target)).lstrip("/")
    for source in sources:
        found = origin / source.lstrip("/")
        if found.is_dir():
            shutil.copytree(found, into, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(found, into / found.name if target.endswith("/") else into)


def _overlay(at: Path, lower: str, upper: Path, work: Path) -> None:
    _mount("-t", "overlay", "none", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", str(at))


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def _assignment(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    _build(Path(request[0]), Path(request[1]), Path(request[2]), request[3])
