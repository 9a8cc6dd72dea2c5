"""The installation: two lock files that agree, and uv with the settings of pip."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import sysconfig
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path

import pytest

from install import OLDEST_PYTHON, Environment, pin_of_uv, pip_settings, refuse_old_python, uv_environment
from ray_history.demo.processes import free_port

ROOT = Path(__file__).parents[1]


def locked(name: str) -> set[str]:
    """The entries of a lock file: version, markers and hashes of each package."""
    text = re.sub(r"^ +#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
    return set(re.split(r"\n(?=\S)", text.strip()))


def without_marker(entry: str) -> str:
    return re.sub(r" ;[^\\]*", " ", entry)


def names(requirements: list[str]) -> set[str]:
    found = [re.match(r"[A-Za-z0-9._-]+", requirement) for requirement in requirements]
    return {re.sub(r"[._]", "-", match[0]).lower() for match in found if match}


def test_the_demo_installs_the_versions_of_the_tests() -> None:
    assert locked("requirements-demo.lock") < locked("requirements-dev.lock"), "make lock"


def test_the_image_installs_the_versions_of_the_tests() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for name, wanted in (
        ("requirements-image.lock", declared["project"]["dependencies"]),
        ("requirements-build.lock", declared["build-system"]["requires"]),
    ):
        tested = {without_marker(entry) for entry in locked("requirements-dev.lock")}
        assert {without_marker(entry) for entry in locked(name)} < tested, "make lock"
        assert names(wanted) <= names(list(locked(name))), "make lock"
        assert all("--hash=sha256:" in entry for entry in locked(name))


def test_the_lock_of_the_demo_is_complete() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = declared["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["demo"] + declared["build-system"]["requires"]
    assert names(wanted) <= names(list(locked("requirements-demo.lock"))), "make lock"


@pytest.mark.parametrize("name", ["requirements-demo.lock", "requirements-dev.lock"])
def test_uv_is_pinned_by_hashes(name: str) -> None:
    pin = pin_of_uv((ROOT / name).read_text())
    assert re.match(r"uv==\d", pin)
    assert "--hash=sha256:" in pin
    assert len(re.findall(r"^\S", pin, re.MULTILINE)) == 1


def test_a_lock_without_uv_is_refused() -> None:
    with pytest.raises(SystemExit, match="make lock"):
        pin_of_uv("uvicorn==0.54.0 \\\n    --hash=sha256:00\n")


def test_an_old_python_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"Python 3\.11 or newer is required, but /usr/bin/python3 is 3\.9.*PYTHON="):
        refuse_old_python((3, 9), "/usr/bin/python3")
    refuse_old_python((3, 11), "/usr/bin/python3")


def test_the_oldest_python_is_the_one_that_is_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert declared == ">=" + ".".join(map(str, OLDEST_PYTHON))


def test_uv_gets_the_settings_of_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://mirror/simple\ntimeout = 7\n"
        "extra-index-url =\n    https://one/simple\n    https://two/simple\n"
        "[install]\ntimeout = 8\ntrusted-host = mirror\n"
    )
    for variable in ("PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "PIP_TIMEOUT", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path} {tmp_path / 'missing'} https://wheels/")
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    variables = uv_environment(pip_settings(listing.stdout), {"PATH": "/bin"})
    assert variables["UV_DEFAULT_INDEX"] == "https://mirror/simple"
    assert variables["UV_INDEX"] == "https://one/simple https://two/simple"
    assert variables["UV_FIND_LINKS"] == f"{tmp_path},https://wheels/"
    assert variables["UV_HTTP_TIMEOUT"] == "8"
    assert variables["UV_INSECURE_HOST"] == "mirror"
    assert variables["PATH"] == "/bin"


def test_variables_of_uv_are_kept() -> None:
    variables = uv_environment({"index-url": "https://of-pip/"}, {"UV_DEFAULT_INDEX": "https://of-uv/"})
    assert variables["UV_DEFAULT_INDEX"] == "https://of-uv/"


def wheel(folder: Path, name: str, version: str, tag: str, content: dict[str, bytes]) -> str:
    """Write an installable package, and return its entry for a lock file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}-{version}-{tag}.whl"
    metadata = f"{name}-{version}.dist-info"
    content |= {
        f"{metadata}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{metadata}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n".encode(),
    }
    with zipfile.ZipFile(file, "w") as archive:
        content[f"{metadata}/RECORD"] = "".join(f"{path},,\n" for path in [*content, f"{metadata}/RECORD"]).encode()
        for path, data in content.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o100755 << 16  # make the programs executable
            archive.writestr(entry, data)
    return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"


def wheel_of_uv(folder: Path) -> str:
    """The installed uv, packed as a wheel."""
    uv = distribution("uv")
    tag = re.findall(r"^Tag: (.*)$", uv.read_text("WHEEL") or "", re.MULTILINE)[0]
    program = Path(sysconfig.get_path("scripts")) / "uv"
    return wheel(folder, "uv", uv.version, tag, {f"uv-{uv.version}.data/scripts/uv": program.read_bytes()})


def project(folder: Path) -> Path:
    """A project that is built without a package index."""
    wheel(folder, "ours", "1.0", "py3-none-any", {"ours.py": b""})
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "build"\nbackend-path = ["."]\n'
        '[project]\nname = "ours"\nversion = "1.0"\n'
    )
    (folder / "build.py").write_text(
        "import os, shutil\n"
        "def build_editable(folder, *_):\n"
        "    return os.path.basename(shutil.copy('ours-1.0-py3-none-any.whl', folder))\n"
    )
    return folder


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package index that is configured for pip only."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path))) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield tmp_path / "simple"
        server.shutdown()


def installer(environment: Environment, name: str) -> str:
    (record,) = (environment.folder / "lib").glob(f"python*/site-packages/{name}-*.dist-info/INSTALLER")
    return record.read_text().strip()


@pytest.mark.parametrize("working", ["uv", "pip"])
def test_installation_from_an_index_that_is_configured_for_pip(
    working: str, index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if working == "pip":
        monkeypatch.setenv(
            "UV_DEFAULT_INDEX", f"http://127.0.0.1:{free_port()}/simple"
        )  # a port on which nothing listens
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    lock = tmp_path / "some.lock"
    rarity = wheel(index / "rarity", "rarity", "1.0", "py3-none-any", {"rarity.py": b""})
    lock.write_text(rarity + wheel_of_uv(index / "uv"))
    environment = Environment(tmp_path / "venv")
    environment.create()
    environment.install(lock, project(tmp_path / "project"))
    environment.compile()
    assert installer(environment, "rarity") == working
    assert installer(environment, "ours") == working
    subprocess.run([environment.python, "-c", "import rarity, ours"], cwd="/", check=True)
