"""Documents: everything in a session besides exported events, as one file of JSON lines for the tables.

Each line is {source, name, node_id, body}:
* `endpoint`: a polled snapshot, under the name by which it is stored;
* `log_event`: a line of `logs/events/event_*.log`, a cluster event;
* `export_event`: a line of `logs/export_events/event_EXPORT_*.log`: submission jobs, datasets, Train runs;
* `log_head`: facts from the first lines of a log file, as {ray_version, python_version, os, ray_commit, cluster_id};
* `log_node`: a node in the first lines of its raylet's log, as {started, node_ip, hostname, resources_total, labels};
* `log_end`: what the last lines of a head's log tell, as {shutdown, last, finished_jobs};
* `worker_log`: a worker or driver process in the name of a log file, as {worker_id, worker_type, pid};
* `ledger`: the ledger of one node;
* `command`: the command of `ray-history run` in such a ledger;
* `node`: a node in the listing, with the number of its files.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, BinaryIO, TypeAlias

import msgspec

from ray_history.archive import layout
from ray_history.archive.errors import ArchiveError, NotFound, TooLarge
from ray_history.archive.event_files.json_lines import is_utf8
from ray_history.archive.ledger import MAX_SIZE as MAX_LEDGER
from ray_history.archive.ledger import read as read_ledger
from ray_history.archive.log_files import LogFile, LogFiles
from ray_history.archive.session_files import SessionFiles
from ray_history.archive.stores import Store
from ray_history.archive.stores.interface import read_small
from ray_history.decoding import DECODING_ERRORS
from ray_history.history.registry import LOG_LINES

from .log_ends import read_end, with_ends
from .log_heads import read_facts, with_facts
from .log_nodes import read_node, with_nodes

_Collect: TypeAlias = Callable[[], Iterator[bytes]]

_MAX_LINE = 8 << 20
MAX_ANSWER = 48 << 20
FRUGAL_ANSWER = 1 << 20
"""The largest answer that is read where memory is short."""
_LARGE = 1 << 20
"""Objects from this size on are read one at a time, and not held in memory as documents."""
_AT_ONCE = 64
"""Smaller objects whose documents are in memory."""
_POLLED_NODES = layout.endpoint_name("/api/v0/nodes")
"""How the names of polled listings of nodes begin."""


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


def write_documents(
    store: Store, files: SessionFiles, out: BinaryIO, problems: list[str], *, max_answer: int = MAX_ANSWER
) -> None:
    """Collect the documents of a session. What cannot be read is added to `problems`."""
    small, large = list[_Collect](), list[_Collect]()
    for size, collect in _collectors(store, files, problems, max_answer):
        (large if size >= _LARGE else small).append(collect)
    with ThreadPoolExecutor(8, "documents") as threads:
        for start in range(0, len(small), _AT_ONCE):
            for documents in threads.map(_all, small[start : start + _AT_ONCE]):
                _write(documents, out)
    for collect in large:
        _write(collect(), out)
    for node in sorted(files.nodes):
        body = {
            "event_files": sum(file.key.node == node for file in files.event_files),
            "log_files": sum(of == node for of, _, _ in files.whole_logs),
        }
        _write([_document("node", node, node, body)], out)


def _all(collect: _Collect) -> list[bytes]:
    return list(collect())


def _write(documents: Iterable[bytes], out: BinaryIO) -> None:
    out.writelines(document + b"\n" for document in documents)


def _collectors(
    store: Store, files: SessionFiles, problems: list[str], max_answer: int
) -> Iterator[tuple[int, _Collect]]:
    """The functions that make the documents, one for each object that they come from, and its size."""
    for name, info in files.endpoints.items():
        if info.size <= max_answer:
            yield info.size, partial(_endpoint, store, name, info.key, problems)
        else:
            problems.append(f"{info.key}: {info.size} bytes, larger than {max_answer}; left out")
    for info in store.list(layout.ledger_prefix(files.session.root, files.session.cluster, files.session.name)):
        yield info.size, partial(_ledger, store, info.key, problems)
    logs = files.logs(store)
    listed = [log_file for node in logs.nodes() for log_file in logs.list(node)]
    for log_file in with_nodes(listed, is_polled=any(name.startswith(_POLLED_NODES) for name in files.endpoints)):
        yield 0, partial(_node, logs, log_file)
    yield from _log_collectors(logs, listed, problems)


def _log_collectors(logs: LogFiles, listed: Sequence[LogFile], problems: list[str]) -> Iterator[tuple[int, _Collect]]:
    for log_file in with_facts(listed):
        yield 0, partial(_head, logs, log_file)
    for log_file in with_ends(listed):
        yield 0, partial(_end, logs, log_file)
    yield 0, partial(_worker_logs, listed)
    for log_file in listed:
        for source, pattern in LOG_LINES.items():
            if log_file.size and fnmatch.fnmatchcase(log_file.name, pattern):
                yield log_file.size, partial(_lines, logs, log_file, source, problems)


def _document(source: str, name: str, node: str, body: Any) -> bytes:
    return msgspec.json.encode({"source": source, "name": name, "node_id": node, "body": body})


def _parsed(body: bytes, place: str, problems: list[str]) -> Any:
    """The decoded body; None if it is not JSON."""
    try:
        return msgspec.json.decode(body)
    except DECODING_ERRORS as error:
        problems.append(f"{place}: not JSON ({error})")
        return None


def _endpoint(store: Store, name: str, key: str, problems: list[str]) -> Iterator[bytes]:
    body = store.get(key)
    # As Python objects, a hostile answer would take twenty times its size.
    document = _unparsed if len(body) >= _LARGE else _parsed
    parsed = document(body, key, problems)
    if parsed is not None:
        yield _document("endpoint", name, "", parsed)


def _unparsed(body: bytes, place: str, problems: list[str]) -> msgspec.Raw | None:
    """The body in one line, if it is JSON."""
    try:
        if is_utf8(body):
            msgspec.json.decode(body, type=msgspec.Raw)
            # Line breaks are white space: in a text they would be escaped.
            return msgspec.Raw(body.replace(b"\r", b" ").replace(b"\n", b" "))
        reason = "not UTF-8"
    except DECODING_ERRORS as error:
        reason = str(error)
    problems.append(f"{place}: not JSON ({reason})")
    return None


def _ledger(store: Store, key: str, problems: list[str]) -> Iterator[bytes]:
    try:
        body = read_small(store, key, MAX_LEDGER)
    except NotFound:
        return
    except TooLarge as error:
        problems.append(f"{error}; left out")
        return
    ledger, found = read_ledger(body)
    problems += [f"{key}: {problem}" for problem in found]
    node = key.rpartition("/")[2].removesuffix(".json")
    if ledger is not None:
        # Fields of later versions stay, unless something in it is invalid.
        parsed = None if found else _parsed(body, key, problems)
        yield _document("ledger", node, node, ledger if parsed is None else parsed)
        if ledger.command is not None:
            yield _document("command", node, node, ledger.command)


def _head(logs: LogFiles, log_file: LogFile) -> Iterator[bytes]:
    if facts := read_facts(logs, log_file):
        yield _document("log_head", log_file.name, log_file.node, facts)


def _node(logs: LogFiles, log_file: LogFile) -> Iterator[bytes]:
    if node := read_node(logs, log_file):
        yield _document("log_node", log_file.name, log_file.node, node)


def _worker_logs(listed: Sequence[LogFile]) -> Iterator[bytes]:
    for log_file in listed:
        if process := process_of(log_file.name):
            yield _document("worker_log", log_file.name, log_file.node, process)


def _end(logs: LogFiles, log_file: LogFile) -> Iterator[bytes]:
    end = read_end(logs, log_file)
    if end is not None:
        yield _document("log_end", log_file.name, log_file.node, end)


def _lines(logs: LogFiles, log_file: LogFile, source: str, problems: list[str]) -> Iterator[bytes]:
    place = f"{log_file.node}/logs/{log_file.name}"
    try:
        for number, line in enumerate(_split(logs.open(log_file).stream()), 1):
            if not line.strip():
                continue
            if len(line) > _MAX_LINE:
                problems.append(f"{place}: line {number}: more than {_MAX_LINE} bytes; left out")
                continue
            body = _parsed(line, f"{place}: line {number}", problems)
            if isinstance(body, dict):
                yield _document(source, log_file.name, log_file.node, body)
    except ArchiveError as error:
        problems.append(f"{place}: {error}")


def _split(chunks: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest
