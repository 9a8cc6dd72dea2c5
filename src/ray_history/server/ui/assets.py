"""The files that our pages refer to, addressed by their content: a browser keeps them for good."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from ray_history.server.http.responses import ApiError

PREFIX = "/_pages"


def _addressed(path: Path) -> tuple[str, bytes]:
    body = path.read_bytes()
    return f"{path.stem}.{hashlib.blake2b(body, digest_size=6).hexdigest()}{path.suffix}", body


_READ = {path.name: _addressed(path) for path in sorted((Path(__file__).parent / "static").iterdir())}
_BY_ADDRESS = dict(_READ.values())


def address(name: str) -> str:
    """Where a file stands below the base path."""
    return f"{PREFIX}/{_READ[name][0]}"


async def static_file(request: Request) -> Response:
    """`/_pages/style.0123456789ab.css`"""
    name = request.path_params["name"]
    body = _BY_ADDRESS.get(name)
    if body is None:
        raise ApiError(404, "there is no such file; a reload of the page asks for the right one")
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(body, media_type=kind, headers={"Cache-Control": "public, max-age=31536000, immutable"})
