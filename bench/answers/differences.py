"""Answers as lines that can be compared: what may differ between two runs of the same program is left out."""

from __future__ import annotations

import difflib
import gzip
import html
import io
import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.answers.servers import Answer

UNSTABLE_HEADERS = {"date", "server", "x-request-id", "content-length", "transfer-encoding", "connection", "etag"}
ASSET = re.compile(r"(_pages/[\w-]+)\.[0-9a-f]{12}\.")
REQUEST = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ req [0-9a-f]+")
"""Time and id of the request on error pages."""
FILE_TIME = re.compile(r"(filename=\"[\w-]+)-\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d")
"""When a downloaded timeline was made."""
CURSOR = re.compile(rb'("next_cursor": ?)"[^"]+"')
"""It belongs to one index: two that are built from the same files have different ones."""
TAG = re.compile(r"<[^>]*>")
LINK = re.compile(r"""\b(?:href|src|action)=["']([^"']*)""")
NUMBER = re.compile(r"\d[\d.,:]*")
WRITTEN = ("README.txt", "completeness.json")
"""Texts of ours in a downloaded session."""


@dataclass(frozen=True)
class Difference:
    """How two answers to one request differ."""

    kind: str
    """`status`, `headers`, `data` (JSON values), `facts` (links and numbers of a page), `binary`, or `text` (words)."""
    lines: tuple[str, ...]
    """A unified diff."""

    @property
    def changes(self) -> tuple[str, ...]:
        """The diff without its context: equal for answers that differ in the same way."""
        return tuple(line for line in self.lines if line[0] in "+-")


def difference(path: str, before: Answer, after: Answer) -> Difference | None:
    """How the answers differ, or None."""
    if before.status != after.status:
        lines = [f"-{before.status} {_start(before)}", f"+{after.status} {_start(after)}"]
        return Difference("status", tuple(lines))
    if _headers(before) != _headers(after):
        return Difference("headers", _diff(_headers(before), _headers(after)))
    bodies = [_unpacked(answer) for answer in (before, after)]
    if bodies[0] == bodies[1]:
        return None
    kind, *lines = _as_lines(path, before.header("content-type"), *bodies)
    return Difference(kind, _diff(*lines)) if lines[0] != lines[1] else None


def _start(answer: Answer) -> str:
    return _unpacked(answer)[:300].decode(errors="replace")


def _headers(answer: Answer) -> list[str]:
    """Sorted, with the digest of an entity tag left out: it may depend on the version."""
    lines = [f"{name}: {value}" for name, value in answer.headers if name not in UNSTABLE_HEADERS]
    return sorted([*_normalised(lines), *(["etag: …"] if answer.header("etag") else [])])


def _normalised(texts: Iterable[str]) -> list[str]:
    """Without digests in the addresses of static files, and without times and ids of requests."""
    return [FILE_TIME.sub(r"\1", REQUEST.sub("", ASSET.sub(r"\1.", text))) for text in texts]


def _unpacked(answer: Answer) -> bytes:
    body = gzip.decompress(answer.body) if answer.header("content-encoding") == "gzip" else answer.body
    return CURSOR.sub(rb'\1"..."', body) if answer.header("content-type").startswith("application/json") else body


def _as_lines(path: str, kind: str, before: bytes, after: bytes) -> tuple[str, list[str], list[str]]:
    """The kind of difference that there can be, and both bodies as lines."""
    if path.endswith("/metrics"):
        return "data", *(_both(_metric_names, before, after))
    if kind.startswith("application/json"):
        return _json_lines(path, before, after)
    if kind.startswith("text/html"):
        facts = _both(_facts, before, after)
        return ("facts", *facts) if facts[0] != facts[1] else ("text", *_both(_html_lines, before, after))
    if kind.startswith("application/zip"):
        same_files = _zip_files(before) == _zip_files(after)
        return "text" if same_files else "binary", *_both(_zip_lines, before, after)
    if kind.startswith("text/"):
        return "text", *_both(lambda body: body.decode(errors="replace").splitlines(), before, after)
    return "binary", [f"{len(before)} bytes: {before[:200]!r}"], [f"{len(after)} bytes: {after[:200]!r}"]


def _both(convert: Callable[[bytes], list[str]], before: bytes, after: bytes) -> tuple[list[str], list[str]]:
    return convert(before), convert(after)


def _json_lines(path: str, before: bytes, after: bytes) -> tuple[str, list[str], list[str]]:
    try:
        values = [json.loads(body) for body in (before, after)]
    except ValueError:
        return "data", *_both(lambda body: body.decode(errors="replace").splitlines(), before, after)
    if "/tasks/timeline" in path and all(isinstance(value, list) for value in values):
        for value in values:  # spans have no order of their own
            value.sort(key=lambda span: json.dumps(span, sort_keys=True))
    kind = "text" if _without_sentences(values[0]) == _without_sentences(values[1]) else "data"
    first, second = (json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False).splitlines() for value in values)
    return kind, first, second


def _without_sentences(value: Any) -> Any:
    """The value with every text of several words replaced, so that only the rest is compared."""
    if isinstance(value, dict):
        return {name: _without_sentences(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_without_sentences(part) for part in value]
    return "…" if isinstance(value, str) and " " in value else value


def _facts(body: bytes) -> list[str]:
    """The links of a page and the numbers in its text, which stay the same when sentences are rewritten."""
    (text,) = _normalised([body.decode(errors="replace")])
    facts = [*LINK.findall(text), *NUMBER.findall(html.unescape(TAG.sub(" ", text)))]
    return sorted(f"{fact}  ({count} times)" for fact, count in Counter(facts).items())


def _html_lines(body: bytes) -> list[str]:
    """One line for each tag or text between tags."""
    (text,) = _normalised([body.decode(errors="replace")])
    parts = (" ".join(part.split()) for part in re.split(r"(<[^>]*>)", text))
    return [part for part in parts if part]


def _metric_names(body: bytes) -> list[str]:
    """Names, labels, types and help texts: values depend on the moment."""
    return sorted(
        line if line.startswith("#") else line.rpartition(" ")[0] for line in body.decode(errors="replace").splitlines()
    )


def _zip_files(body: bytes) -> list[str]:
    """Names and sizes; tables are compared by the routes that show them."""
    with zipfile.ZipFile(io.BytesIO(body)) as packed:
        files = [file for file in packed.infolist() if file.filename not in WRITTEN]
    return sorted(f"{f.filename} {'' if f.filename.endswith('.parquet') else f.file_size}" for f in files)


def _zip_lines(body: bytes) -> list[str]:
    """Names and sizes of files, and the texts that we write."""
    with zipfile.ZipFile(io.BytesIO(body)) as packed:
        texts = [packed.read(name).decode(errors="replace") for name in WRITTEN if name in packed.namelist()]
    return [*_zip_files(body), *(line for text in texts for line in text.splitlines())]


def _diff(before: list[str], after: list[str]) -> tuple[str, ...]:
    lines = difflib.unified_diff(before, after, n=2, lineterm="")
    return tuple(line for line in lines if not line.startswith(("---", "+++", "@@")))


def shortened(lines: tuple[str, ...], most: int, width: int = 240) -> Iterator[str]:
    for line in lines[:most]:
        yield line if len(line) <= width else line[:width] + "…"
    if len(lines) > most:
        yield f"… {len(lines) - most} more lines"
