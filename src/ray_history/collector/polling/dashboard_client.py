"""A client for the Ray Dashboard of this cluster, with its token and a time limit per request.

    DashboardError
    ├── Unreachable     no complete answer: not started yet, gone, or cut off
    │   └── TimedOut    not within the time limit: slow, or hanging
    ├── Refused         401 or 403: the token is missing, wrong or not allowed
    ├── BadStatus       an answer with a status other than 200
    ├── TooLarge        the body is larger than the limit; nothing of it was kept
    └── Misconfigured   the address or a token setting is invalid; nothing was sent

The token is read for every request: Kubernetes renews projected tokens, the first `ray.init()` of a user creates the
file in the home directory, and both must end a 401 without a restart. It never appears in a message. Answers are
returned unchanged: Ray redacts the values of `env_vars` only for browsers, so a server has to redact them.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ray_history import __version__

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Ten times the size of 10,000 workers with details (580 bytes each)."""

ALONE_BYTES = 4 * 1024 * 1024
"""Larger answers are read one after the other: four of 64 MiB at once would exceed the memory of a sidecar, 256 MiB."""

DEFAULT_PORT = 8265
TOKEN_FILE = Path("/var/run/secrets/ray.io/serviceaccount/token")
TOKEN_HEADER = "x-ray-authorization"  # noqa: S105 (Ray accepts it besides `Authorization`, which proxies may remove)

_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
"""The values that Go's strconv.ParseBool reads as true, as KubeRay's collector reads the same variable."""
_READ_BYTES = 256 * 1024
_WAYS = "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH as for Ray, or RAY_ENABLE_K8S_TOKEN_AUTH=true"


class DashboardError(Exception):
    """There is no usable answer; the message says why in one line."""


class Unreachable(DashboardError):
    """No complete answer."""


class TimedOut(Unreachable):
    """No complete answer in time."""


class Refused(DashboardError):
    """The dashboard requires a token, or rejects this one."""


class BadStatus(DashboardError):
    """The dashboard answered with a status other than 200."""

    def __init__(self, status: int) -> None:
        super().__init__(f"answered with status {status}")
        self.status = status


class TooLarge(DashboardError):
    """The body is larger than the limit."""


class Misconfigured(DashboardError):
    """An address or token setting is invalid."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer with status 200; any other raises."""

    status: int
    body: bytes


class Dashboard:
    """The dashboard at one address. Thread-safe: each request has a connection of its own."""

    def __init__(
        self,
        base_url: str,
        token: Callable[[], str | None],
        *,
        max_body: int = MAX_BODY_BYTES,
        turn: threading.Lock | None = None,
    ) -> None:
        """`turn` is held while a large answer is read."""
        self.base_url = base_url.rstrip("/")
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise Misconfigured(
                f"not the address of a dashboard: {_without_user(base_url)!r}; use http://host:{DEFAULT_PORT}"
            )
        self._host, self._port, self._prefix = parts.hostname, _port(parts.netloc, base_url), parts.path
        self._connection = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._token = token
        self._max_body = max_body
        self.turn = turn or threading.Lock()

    def get(self, url: str, *, timeout: float) -> Answer:
        """The answer to `url` (path and query), or a DashboardError after at most about `timeout` seconds."""
        deadline = time.monotonic() + timeout
        headers = {"Accept": "*/*", "User-Agent": f"ray-history/{__version__}"}
        token = self._token()
        if token:
            headers[TOKEN_HEADER] = f"Bearer {token}"
        connection = self._connection(self._host, self._port, timeout=max(timeout, 0.001))
        try:
            connection.connect()
            socket = connection.sock  # the response takes it from the connection
            connection.request("GET", self._prefix + url, headers=headers)
            socket.settimeout(_left(deadline))
            with connection.getresponse() as response:
                _check_status(response.status)
                return Answer(response.status, self._read(response, socket.settimeout, deadline))
        except http.client.InvalidURL as error:
            raise Misconfigured(f"not a path of the dashboard: {url!r}") from error
        except TimeoutError as error:
            raise TimedOut(f"no answer from {self.base_url}: timed out") from error
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"no answer from {self.base_url}: {error or type(error).__name__}") from error
        finally:
            connection.close()

    def _read(self, response: http.client.HTTPResponse, set_timeout: Callable[[float], None], deadline: float) -> bytes:
        announced = response.length
        body = bytearray()
        with ExitStack() as alone:
            alone.callback(body.clear)  # the frames of an exception keep it alive until the next garbage collection
            has_turn = False
            while len(body) <= self._max_body and (announced or 0) <= self._max_body:
                if len(body) > ALONE_BYTES and not has_turn:
                    alone.enter_context(self._turn_before(deadline))
                    has_turn = True
                set_timeout(_left(deadline))
                chunk = response.read1(_READ_BYTES)
                body += chunk
                if not chunk or response.isclosed():  # Python 3.13 closes it with the last byte, older ones after it
                    break
            else:
                raise TooLarge(f"the answer is larger than {self._max_body / 1024 / 1024:g} MiB")
            if announced is not None and len(body) != announced:  # read1 reports a closed connection as the end
                raise Unreachable(f"the answer from {self.base_url} was cut short")
            return bytes(body)

    @contextmanager
    def _turn_before(self, deadline: float) -> Iterator[None]:
        if not self.turn.acquire(timeout=_left(deadline)):
            raise TimeoutError("timed out")
        try:
            yield
        finally:
            self.turn.release()


def ray_token(environ: Mapping[str, str], token_file: Path = TOKEN_FILE) -> str | None:
    """The token for the dashboard; None if there is none.

    RAY_ENABLE_K8S_TOKEN_AUTH comes first, as in KubeRay's collector. Then follows Ray's own order (2.60):
    RAY_AUTH_TOKEN, the file that RAY_AUTH_TOKEN_PATH names, `~/.ray/auth_token`. Ray strips white space, and does not
    expand `~`.
    """
    if environ.get("RAY_ENABLE_K8S_TOKEN_AUTH", "").strip() in _TRUE:
        return _token_in(token_file, f"RAY_ENABLE_K8S_TOKEN_AUTH is set, but {token_file}")
    token = environ.get("RAY_AUTH_TOKEN", "")
    path, home = environ.get("RAY_AUTH_TOKEN_PATH", ""), environ.get("HOME", "")
    if token.strip():
        return _usable(token.strip(), "RAY_AUTH_TOKEN")
    # For Ray, a variable of white space is set, and no file is read instead.
    if path and not token:
        return _token_in(Path(path), f"RAY_AUTH_TOKEN_PATH is set, but {path}")
    if home and not token:
        with suppress(OSError, UnicodeDecodeError):  # most users have no such file, and need none
            if found := Path(home, ".ray", "auth_token").read_text().strip():
                return _usable(found, "~/.ray/auth_token")
    if environ.get("RAY_AUTH_MODE", "").strip().lower() == "token":
        raise Misconfigured(f"RAY_AUTH_MODE is token, but there is no token: {_WAYS}")
    return None


def _token_in(file: Path, source: str) -> str:
    try:
        return _usable(file.read_text().strip(), source)
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{source} cannot be read: {error}") from None


def dashboard_url(address: str, port: int = DEFAULT_PORT) -> str:
    """The base URL for a host as in `FQ_RAY_IP`: with or without scheme, port, or a slash at the end."""
    scheme, _, rest = address.strip().rpartition("://")
    host, slash, path = rest.partition("/")
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"
    if not host.rpartition("]")[2].count(":"):
        host = f"{host}:{port}"
    return f"{scheme or 'http'}://{host}{slash}{path}".rstrip("/")


def _usable(token: str, source: str) -> str:
    if not token:
        raise Misconfigured(f"{source} is empty")
    if not token.isascii() or not token.isprintable() or " " in token:  # a line break would end the header
        raise Misconfigured(f"{source} has invalid characters")
    return token


def _check_status(status: int) -> None:
    if status in (401, 403):
        raise Refused(f"the dashboard refused the request with {status}: {_WAYS}")
    if status != 200:
        raise BadStatus(status)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _port(netloc: str, base_url: str) -> int | None:
    try:
        return urlsplit(f"//{netloc}").port
    except ValueError:
        raise Misconfigured(f"not a port in the address of the dashboard: {base_url!r}") from None


def _without_user(url: str) -> str:
    return url.rpartition("@")[2]
