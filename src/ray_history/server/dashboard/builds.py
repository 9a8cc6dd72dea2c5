"""The pages of the Ray Dashboard: the frontend as Ray ships it, one build per Ray version.

Builds come from the configured directory (itself a build, or with one directory per version), from the directory of
`ray-history dashboard add`, and from the installed `ray` package. Those added while the server runs are found.
Files are looked up in a list, never joined into paths. Their names contain a hash of the content, so that the files of
all versions can be served at once.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import mimetypes
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from starlette.responses import FileResponse, HTMLResponse, Response

from ray_history.server.http.responses import ApiError

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*[A-Za-z0-9.+-]*")

POLICY = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "font-src 'self' data:; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; worker-src 'self' blob:; "
    "connect-src 'self'; frame-ancestors 'self'; base-uri 'self'; form-action 'self'; object-src 'none'"
}
"""The frontend uses inline styles, and evaluates a regular expression engine for its log viewer."""

_MISSING = """<!doctype html><title>Ray Dashboard</title><h1>No dashboard pages are installed</h1>
<p>The API of this session works. For its pages run <code>ray-history dashboard add {version}</code>, or
<code>pip install ray</code> beside this server, or give a build with <code>--dashboard-dir</code>.</p>"""


@dataclass(frozen=True, slots=True)
class Build:
    """One build of the frontend."""

    version: str
    directory: Path
    files: dict[str, Path] = field(repr=False)

    @property
    def page(self) -> str:
        """Its only page."""
        return self.files["index.html"].read_text("utf-8")


class Frontends:
    """All available builds."""

    def __init__(self, directories: Iterable[Path] = ()) -> None:
        self._directories = tuple(directories)
        self._installed = _installed()
        self._found: tuple[tuple[int, ...], dict[str, Build]] = (), {}

    @property
    def builds(self) -> dict[str, Build]:
        """By version; read again after a directory has changed."""
        changed = tuple(_changed(directory) for directory in self._directories)
        if not self._found[1] or changed != self._found[0]:
            self._found = changed, self._read()
        return self._found[1]

    def _read(self) -> dict[str, Build]:
        found: dict[str, Build] = {}
        for directory in self._directories:
            for build in _builds_in(directory):
                found.setdefault(build.version, build)
        if self._installed is not None:
            found.setdefault(self._installed.version, self._installed)
        return found

    def chosen(self, ray_version: str | None, chosen: str | None) -> Build | None:
        """The chosen build, otherwise the nearest to the session's Ray version; None without any builds."""
        builds = self.builds
        if chosen and chosen not in builds:
            raise ApiError(404, f"no dashboard {chosen[:20]!r}; available: {', '.join(self.versions) or 'none'}")
        return builds.get(chosen or "") or self.nearest(ray_version)

    def missing(self, ray_version: str | None) -> Response:
        """The page that is shown if there are no builds."""
        return HTMLResponse(_MISSING.format(version=re.sub(r"[^0-9.a-z]", "", ray_version or "") or "VERSION"))

    def file(self, name: str) -> Response:
        """A file that a page refers to."""
        for build in self.builds.values():
            path = build.files.get(name)
            if path is not None:
                kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
                is_immutable = name.startswith("static/")
                headers = {"Cache-Control": "public, max-age=31536000, immutable" if is_immutable else "no-cache"}
                return FileResponse(path, media_type=kind, headers=headers | POLICY)
        raise ApiError(404, "file not found")

    @property
    def versions(self) -> list[str]:
        return sorted(self.builds, key=_order, reverse=True)

    def nearest(self, ray_version: str | None) -> Build | None:
        """The same version, otherwise the next newer one, otherwise the newest."""
        builds = self.builds
        if not builds:
            return None
        versions = sorted(builds, key=_order, reverse=True)
        newer = [version for version in versions if ray_version and _order(version) >= _order(ray_version)]
        return builds[newer[-1] if newer else versions[0]]


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", version)[:3])


def _changed(directory: Path) -> int:
    """When an entry was last added to or removed from a directory; 0 without one."""
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0


def _builds_in(directory: Path) -> Iterable[Build]:
    if (directory / "index.html").is_file():
        yield _build(directory.name if _VERSION.fullmatch(directory.name) else "0", directory)
    elif directory.is_dir():
        for entry in sorted(directory.iterdir()):
            if _VERSION.fullmatch(entry.name) and (entry / "index.html").is_file():
                yield _build(entry.name, entry)


def _installed() -> Build | None:
    """The build inside the installed `ray`, found without importing it."""
    try:
        found = importlib.util.find_spec("ray")
        version = importlib.metadata.version("ray")
    except (ImportError, ValueError):
        return None
    for place in (found.submodule_search_locations or ()) if found else ():
        directory = Path(place) / "dashboard" / "client" / "build"
        if (directory / "index.html").is_file():
            return _build(version, directory)
    return None


def _build(version: str, directory: Path) -> Build:
    files = {
        path.relative_to(directory).as_posix(): path
        for path in directory.rglob("*")
        if path.is_file() and not path.name.endswith(".map")
    }
    return Build(version, directory, files)
