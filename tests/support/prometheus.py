"""A real Prometheus for the tests, Debian's: `python -m tests.support.prometheus install`.

It is unpacked into `.parts/prometheus/`, which git ignores; nothing is installed. Samples come in by remote write.
"""

from __future__ import annotations

import json
import struct
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .debian import program_of
from .processes import PartUnavailable, Process, free_port, port_is_open

_SERIES_AT_ONCE = 500

Sample = tuple[int, float]
"""A time in ms, and a value."""


def program(name: str = "prometheus") -> Path:
    """The path of `prometheus` or `promtool`, which are unpacked if they are missing."""
    return program_of("prometheus", name)


class Prometheus(Process):
    """A Prometheus that takes samples of any time, and scrapes nothing but `scrapes`."""

    def __init__(self, folder: Path, scrapes: str = "") -> None:
        """`scrapes` is YAML: the section `scrape_configs`."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        config = folder / "prometheus.yml"
        config.write_text("storage:\n  tsdb:\n    out_of_order_time_window: 30d\n" + scrapes)
        command = [
            program(),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-remote-write-receiver",
            "--storage.tsdb.retention.time=100y",
            "--query.timeout=5m",
        ]
        super().__init__(command, log=folder / "prometheus.log", ready=lambda: port_is_open(self.port))

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise PartUnavailable("Prometheus is not ready after two minutes")

    def write(self, series: Sequence[tuple[Mapping[str, str], Sequence[Sample]]]) -> None:
        """Store series by remote write."""
        for start in range(0, len(series), _SERIES_AT_ONCE):
            body = _literal_snappy(_write_request(series[start : start + _SERIES_AT_ONCE]))
            headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
            request = urllib.request.Request(f"{self.url}/api/v1/write", body, headers)
            with urllib.request.urlopen(request, timeout=120):
                pass

    def ask(self, path: str, **parameters: Any) -> tuple[int, dict[str, Any]]:
        """The status and the JSON body of an answer of the API."""
        return ask(f"{self.url}/api/v1/{path}", **parameters)

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """The same by GET; the path includes the query."""
        return _answer(f"{self.url}/api/v1/{path}", None)


def ask(url: str, **parameters: Any) -> tuple[int, dict[str, Any]]:
    """The status and the JSON body of an answer to a form that is posted."""
    return _answer(url, urllib.parse.urlencode(parameters, doseq=True).encode())


def _answer(url: str, body: bytes | None) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(url, body, timeout=300) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    """A field of protobuf with a length."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _write_request(series: Iterable[tuple[Mapping[str, str], Sequence[Sample]]]) -> bytes:
    return b"".join(_field(1, _time_series(labels, samples)) for labels, samples in series)


def _time_series(labels: Mapping[str, str], samples: Sequence[Sample]) -> bytes:
    parts = [_field(1, _field(1, name.encode()) + _field(2, value.encode())) for name, value in sorted(labels.items())]
    parts += [_field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(time_ms)) for time_ms, value in samples]
    return b"".join(parts)


def _literal_snappy(data: bytes) -> bytes:
    """Snappy's block format without compression: literals only."""
    return _varint(len(data)) + b"".join(_literals(data))


def _literals(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), 1 << 16):
        part = data[start : start + (1 << 16)]
        yield bytes([61 << 2]) + struct.pack("<H", len(part) - 1) + part


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python -m tests.support.prometheus install")
    try:
        sys.stdout.write(f"{program()}\n")
    except PartUnavailable as reason:
        sys.stderr.write(f"Tests with Prometheus are skipped: {reason}\n")
