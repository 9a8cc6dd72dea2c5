"""The Ray Dashboard's own pages: the frontend as Ray ships it, one build per Ray version.

Builds are looked for in the directory given (itself a build, or one directory per version), in the directory that
`ray-history dashboard add` fills, and in the installed `ray` package. Files are looked up in a list made once, never
joined into paths; their names carry a hash of their content, so one that any version's page asks for is found whatever
is chosen.
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

_MISSING = """<!doctype html><title>Ray Dashboard</title><h1>No dashboard pages are installed</h1>
<p>The API of this session works. For its pages run <code>ray-history dashboard add {version}</code>, or
<code>pip install ray</code> beside this server, or give a build with <code>--dashboard-dir</code>.</p>"""


@dataclass(frozen=True, slots=True)
class Build:
    """One built frontend."""

    version: str
    directory: Path
    files: dict[str, Path] = field(repr=False)

    @property
    def page(self) -> str:
        """The one page of it."""
        return self.files["index.html"].read_text("utf-8")


class Frontends:
    """The builds that there are."""

    def __init__(self, directories: Iterable[Path] = ()) -> None:
        self.builds: dict[str, Build] = {}
        for directory in directories:
            for build in _builds_in(directory):
                self.builds.setdefault(build.version, build)
        installed = _installed()
        if installed is not None:
            self.builds.setdefault(installed.version, installed)

    def chosen(self, ray_version: str | None, chosen: str | None) -> Build | None:
        """The build nearest to the session's Ray, or the chosen one; none if there are no builds."""
        if chosen and chosen not in self.builds:
            raise ApiError(404, f"no dashboard {chosen[:20]!r}; there are {', '.join(self.versions) or 'none'}")
        return self.builds.get(chosen or "") or self.nearest(ray_version)

    def missing(self, ray_version: str | None) -> Response:
        """What is shown instead of a build."""
        return HTMLResponse(_MISSING.format(version=re.sub(r"[^0-9.a-z]", "", ray_version or "") or "VERSION"))

    def file(self, name: str) -> Response:
        """A file that a page refers to."""
        for build in self.builds.values():
            path = build.files.get(name)
            if path is not None:
                kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
                lasting = name.startswith("static/")
                headers = {"Cache-Control": "public, max-age=31536000, immutable" if lasting else "no-cache"}
                return FileResponse(path, media_type=kind, headers=headers)
        raise ApiError(404, "there is no such file")

    @property
    def versions(self) -> list[str]:
        return sorted(self.builds, key=_order, reverse=True)

    def nearest(self, ray_version: str | None) -> Build | None:
        """The same version, else the next newer one, else the newest."""
        if not self.builds:
            return None
        newer = [version for version in self.versions if ray_version and _order(version) >= _order(ray_version)]
        return self.builds[newer[-1] if newer else self.versions[0]]


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", version)[:3])


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
