"""Documents: everything in a session besides exported events, as one file of JSON lines for the tables.

Each line is {source, name, node_id, body}:
* `endpoint`: a polled snapshot, under the name by which it is stored;
* `log_event`: a line of `logs/events/event_*.log`, a cluster event;
* `export_event`: a line of `logs/export_events/event_EXPORT_*.log`: submission jobs, datasets, Train runs;
* `log_head`: facts from the first lines of a log file, as {ray_version, python_version, os, ray_commit, cluster_id};
* `log_end`: the shutdown in the last lines of a head's log, as {shutdown}, which is empty without one;
* `worker_log`: a worker or driver process in the name of a log file, as {worker_id, worker_type, pid};
* `ledger`: the ledger of one node;
* `node`: a node in the listing, with the number of its files.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO

import msgspec

from ray_history.archive import layout
from ray_history.archive.errors import ArchiveError, NotFound
from ray_history.archive.log_files import LogFile, LogFiles
from ray_history.archive.session_files import SessionFiles
from ray_history.archive.stores import Store
from ray_history.history.registry import LOG_LINES

from .log_ends import read_end, with_ends
from .log_heads import read_facts, with_facts

_MAX_LINE = 8 << 20
_MAX_ANSWER = 48 << 20


def is_source_log(name: str) -> bool:
    """Whether documents are made from the lines of a log file."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in LOG_LINES.values())


_PROCESS = re.compile(
    r"worker-(?P<worker>[0-9a-f]{56})-[0-9a-f]{8}-(?P<worker_pid>\d{1,10})[.](?:out|err)"
    r"|\w+-core-(?P<type>worker|driver)-(?P<id>[0-9a-f]{56})_(?P<pid>\d{1,10})[.]log"
)


def process_of(name: str) -> dict[str, Any] | None:
    """The worker or driver process that writes a log file; None for other files."""
    found = _PROCESS.fullmatch(name)
    if found is None:
        return None
    worker_type = found["type"] or "worker"
    pid = int(found["worker_pid"] or found["pid"])
    return {"worker_id": found["worker"] or found["id"], "worker_type": worker_type.upper(), "pid": pid}


def write_documents(store: Store, files: SessionFiles, out: BinaryIO, problems: list[str]) -> None:
    """Collect the documents of a session. What cannot be read is added to `problems`."""
    with ThreadPoolExecutor(8, "documents") as threads:
        for job in [threads.submit(collect) for collect in _collectors(store, files, problems)]:
            out.writelines(line + b"\n" for line in job.result())
    for node in sorted(files.nodes):
        body = {
            "event_files": sum(file.key.node == node for file in files.event_files),
            "log_files": sum(of == node for of, _, _ in files.whole_logs),
        }
        out.write(_document("node", node, node, body) + b"\n")


def _collectors(store: Store, files: SessionFiles, problems: list[str]) -> Iterator[Callable[[], list[bytes]]]:
    """The functions that make the documents, one for each object that they come from."""
    for name, info in files.endpoints.items():
        if _fits(info.size, info.key, problems):
            yield partial(_endpoint, store, name, info.key, problems)
    for info in store.list(layout.ledger_prefix(files.session.root, files.session.cluster, files.session.name)):
        yield partial(_ledger, store, info.key, problems)
    logs = files.logs(store)
    listed = [log_file for node in logs.nodes() for log_file in logs.list(node)]
    for log_file in with_facts(listed):
        yield partial(_head, logs, log_file)
    for log_file in with_ends(listed):
        yield partial(_end, logs, log_file)
    yield partial(_worker_logs, listed)
    for log_file in listed:
        for source, pattern in LOG_LINES.items():
            if log_file.size and fnmatch.fnmatchcase(log_file.name, pattern):
                yield partial(_lines, logs, log_file, source, problems)


def _document(source: str, name: str, node: str, body: Any) -> bytes:
    return msgspec.json.encode({"source": source, "name": name, "node_id": node, "body": body})


def _fits(size: int, key: str, problems: list[str]) -> bool:
    if size > _MAX_ANSWER:
        problems.append(f"{key}: {size} bytes, larger than {_MAX_ANSWER}; left out")
    return size <= _MAX_ANSWER


def _parsed(body: bytes, place: str, problems: list[str]) -> Any:
    """The decoded body; None if it is not JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problems.append(f"{place}: not JSON ({error})")
        return None


def _endpoint(store: Store, name: str, key: str, problems: list[str]) -> list[bytes]:
    body = _parsed(store.get(key), key, problems)
    return [] if body is None else [_document("endpoint", name, "", body)]


def _ledger(store: Store, key: str, problems: list[str]) -> list[bytes]:
    try:
        body = _parsed(store.get(key), key, problems)
    except NotFound:
        return []
    node = key.rpartition("/")[2].removesuffix(".json")
    return [] if body is None else [_document("ledger", node, node, body)]


def _head(logs: LogFiles, log_file: LogFile) -> list[bytes]:
    facts = read_facts(logs, log_file)
    return [_document("log_head", log_file.name, log_file.node, facts)] if facts else []


def _worker_logs(listed: Sequence[LogFile]) -> list[bytes]:
    return [
        _document("worker_log", log_file.name, log_file.node, process)
        for log_file in listed
        if (process := process_of(log_file.name))
    ]


def _end(logs: LogFiles, log_file: LogFile) -> list[bytes]:
    end = read_end(logs, log_file)
    return [] if end is None else [_document("log_end", log_file.name, log_file.node, end)]


def _lines(logs: LogFiles, log_file: LogFile, source: str, problems: list[str]) -> list[bytes]:
    place = f"{log_file.node}/logs/{log_file.name}"
    documents = []
    try:
        for number, line in enumerate(_split(logs.open(log_file).stream()), 1):
            if not line.strip():
                continue
            if len(line) > _MAX_LINE:
                problems.append(f"{place}: line {number}: more than {_MAX_LINE} bytes; left out")
                continue
            body = _parsed(line, f"{place}: line {number}", problems)
            if isinstance(body, dict):
                documents.append(_document(source, log_file.name, log_file.node, body))
    except ArchiveError as error:
        problems.append(f"{place}: {error}")
    return documents


def _split(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest
