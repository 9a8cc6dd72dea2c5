"""Compare what the servers of two source trees answer.

    python -m bench.answers BEFORE AFTER

Each is a git revision or a directory with `src/`. Both servers read the same archive: the captured session in every
layout and state, and generated sessions. Every route is requested, with good and bad parameters, from both at the same
time. A difference that lasts is printed as a diff; equal diffs are printed once, with the number of requests that have
them. The exit code is 1 if there was any difference, and 0 if there was none.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bench.answers import archive, live
from bench.answers.archive import Target
from bench.answers.differences import Difference, difference, shortened
from bench.answers.requests import PAGE, Request, of_live, of_session, of_site
from bench.answers.servers import Answer, Server, both, source_tree

AT_ONCE = 3
ATTEMPTS = 4
"""A page that shows an age changes each second: a difference counts if it is there every time."""
PAUSE = 0.7
SETTLING = 5.0
KINDS = ("status", "headers", "data", "facts", "binary", "text")
TOKENS = {"ada": "ada-has-this-long-token", "bob": "bob-has-another-long-token", "nobody": "nobody-has-this-token"}
RULES = [
    {"name": "ada", "token": TOKENS["ada"], "namespaces": ["*"]},
    {"name": "bob", "token": TOKENS["bob"], "namespaces": ["team-*", "states/ended"]},
]


@dataclass(frozen=True)
class Way:
    """One way to start the server, the sessions that are requested from it, and the headers of the requests."""

    name: str
    options: Sequence[str]
    targets: Sequence[Target]
    headers: Sequence[dict[str, str]] = ({},)
    """The first ones give access to all sessions."""
    base_path: str = ""
    live: Sequence[Target] = ()
    """Live clusters to compare; with any, the server runs with stand-ins for Kubernetes and a head."""


def ways(targets: Sequence[Target], folder: Path) -> list[Way]:
    """As most run it, with tokens, with secrets shown below a base path, and with live clusters."""
    rules = folder / "rules.json"
    rules.write_text(json.dumps(RULES))
    rules.chmod(0o600)
    thorough = [target for target in targets if target.thorough]
    by_token = [*({"Authorization": f"Bearer {token}"} for token in TOKENS.values()), {}]
    return [
        Way("default", (), targets),
        Way("tokens", ("--auth", "token", "--auth-tokens-file", str(rules)), [thorough[0].briefly()], by_token),
        Way("base path", ("--show-secrets", "--base-path", "/ray"), [thorough[0].briefly()], base_path="/ray"),
        Way("live", (), (), live=live.TARGETS),
    ]


class Comparison:
    """Requests from both servers, and the differences found."""

    def __init__(self, servers: Sequence[Server], only: str, every: int) -> None:
        self._servers = servers
        self._only = only
        self._every = every
        self._pool = ThreadPoolExecutor(2 * AT_ONCE)
        self.statuses: Counter[int] = Counter()
        self.found: dict[Request, Difference] = {}

    def compare(self, requests: Iterable[Request]) -> None:
        """Send all requests; those answered differently are sent again before they count."""
        suspects = [request for request in dict.fromkeys(requests) if self._only in str(request)][:: self._every]
        print(f"  {len(suspects):,} requests", flush=True)
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE)
            with ThreadPoolExecutor(AT_ONCE if not attempt else 1) as threads:
                results = dict(zip(suspects, threads.map(self._difference, suspects), strict=True))
            suspects = [request for request, found in results.items() if found]
            if not suspects:
                return
        self.found |= {request: found for request, found in results.items() if found}

    def _difference(self, request: Request) -> Difference | None:
        before, after = self._pool.map(lambda server: self._answer(server, request), self._servers)
        self.statuses[before.status] += 1
        return difference(request.path.partition("?")[0], before, after)

    def _answer(self, server: Server, request: Request) -> Answer:
        return server.request(request.method, request.path, request.headers)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m bench.answers", description="Compare the answers of two versions.")
    parser.add_argument("before", help="git revision, or directory with src/")
    parser.add_argument("after", help="git revision, or directory with src/")
    parser.add_argument("--only", default="", metavar="TEXT", help="only requests whose line contains this text")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth request (default: 1)")
    parser.add_argument("--way", default="", metavar="TEXT", help="only this way to start the server")
    parser.add_argument("--lines", type=int, default=30, help="lines printed of each diff (default: 30)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ray-history-answers-") as temporary:
        folder = Path(temporary)
        trees = [source_tree(tree, folder / name) for tree, name in ((options.before, "a"), (options.after, "b"))]
        targets = archive.write(folder / "archive")
        found: dict[Request, Difference] = {}
        for way in ways(targets, folder):
            if options.way in way.name:
                found |= _compare_way(way, trees, targets, folder, options)
    _print(found, options.lines)
    return 1 if found else 0


def _compare_way(
    way: Way, trees: Sequence[Path], targets: Sequence[Target], folder: Path, options: argparse.Namespace
) -> dict[Request, Difference]:
    begin = time.monotonic()
    with ExitStack() as stack:
        more = stack.enter_context(live.running_clusters(folder)) if way.live else ()
        started = stack.enter_context(both(trees, folder, way.name.replace(" ", "-"), [*way.options, *more]))
        servers = [replace(server, base_path=way.base_path) for server in started]
        privileged = [replace(server, headers=way.headers[0]) for server in servers]
        _open_all(privileged, targets)
        requests = [*of_site(), *(r for target in way.targets for r in of_session(privileged[0], target))]
        requests += (r for target in way.live for r in of_live(privileged[0], targets[0], target))
        comparison = Comparison(servers, options.only, options.every)
        for headers in way.headers:
            comparison.compare([replace(request, headers=headers | request.headers) for request in requests])
    statuses = ", ".join(f"{count:,} answers of {status}" for status, count in sorted(comparison.statuses.items()))
    print(f"{way.name}: {statuses}; {time.monotonic() - begin:.0f} s", flush=True)
    return comparison.found


def _open_all(servers: Sequence[Server], targets: Sequence[Target]) -> None:
    """Open all sessions, and wait until the list of sessions no longer changes."""
    for server in servers:
        for target in targets:
            server.request("GET", f"{target.path}/api/v0/jobs")
    pages = [server.request("GET", "/", PAGE) for server in servers]
    for _ in range(20):
        time.sleep(SETTLING)
        earlier, pages = pages, [server.request("GET", "/", PAGE) for server in servers]
        if not any(difference("/", *pair) for pair in zip(earlier, pages, strict=True)):
            return


def _print(found: dict[Request, Difference], most: int) -> None:
    """Equal diffs once, those of data first."""
    groups: dict[tuple[str, tuple[str, ...]], list[Request]] = defaultdict(list)
    for request, different in found.items():
        groups[different.kind, different.changes].append(request)
    for (kind, _), requests in sorted(groups.items(), key=lambda item: (KINDS.index(item[0][0]), -len(item[1]))):
        print(f"\n== {kind}: {requests[0]}" + (f" and {len(requests) - 1} more" if len(requests) > 1 else ""))
        for request in requests[1:4]:
            print(f"   {request}")
        print("\n".join(shortened(found[requests[0]].lines, most)))
    counts = Counter(different.kind for different in found.values())
    total = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    print(f"\n{len(found)} requests are answered differently" + (f": {total}" if total else ""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
