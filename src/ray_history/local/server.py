"""Which history server of this user runs, so that a second `ray-history ui` reuses it and `run` prints its address.

There is one file per archive, `~/.ray-history/servers/<digest>.json`. A file is believed only if its process lives and
its address answers: a server that was killed leaves its file behind.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

SERVERS = Path("~/.ray-history/servers")
_TIMEOUT = 1.0


@contextmanager
def announced(storage: str, url: str) -> Iterator[None]:
    """While inside, other commands find the server of the archive at this URL."""
    file = _file(storage)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps({"url": url, "pid": os.getpid()}))
    new.replace(file)
    try:
        yield
    finally:
        with suppress(OSError):
            if json.loads(file.read_text()).get("pid") == os.getpid():
                file.unlink()


def running_server(storage: str) -> str | None:
    """The URL of the running server of an archive; None if there is none."""
    try:
        found = json.loads(_file(storage).read_text())
        url, pid = str(found["url"]), int(found["pid"])
        os.kill(pid, 0)
        is_alive = _answers(url)
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return None
    return url if is_alive else None


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT)) as connection:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200


def _file(storage: str) -> Path:
    digest = hashlib.blake2b(storage.encode(), digest_size=8).hexdigest()
    return SERVERS.expanduser() / f"{digest}.json"
