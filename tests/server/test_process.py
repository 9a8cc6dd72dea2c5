"""The server as a process: its command lines and its shutdown."""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import signal
import ssl
import sysconfig
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ray_history.archive.layout import Cluster, Generation
from ray_history.archive.stores import open_store
from ray_history.archive.stores.directory import DirectorySettings
from tests.collector.collector_process import run_cli
from tests.conftest import OpenStore, s3_variables
from tests.support.captured import captured, write_archive
from tests.support.fixtures import FaultProxyFactory
from tests.support.processes import Process, free_port, port_is_open
from tests.support.seaweedfs import SeaweedFS

S = f"/s/default/demo/{captured().session}"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("process") / "archive"
    write_archive(open_store(DirectorySettings(folder)), Generation.C, Cluster("default", "demo"))
    return folder


@contextmanager
def running(
    folder: Path, program: str, *arguments: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[Process, int]]:
    port = free_port()
    command = [str(Path(sysconfig.get_path("scripts")) / program), *arguments, "--port", str(port)]
    command += ["--cache-dir", str(folder / "cache")]
    with Process(command, log=folder / "log", ready=lambda: port_is_open(port), env=env, stop_seconds=20) as process:
        yield process, port


def test_the_drop_in_accepts_kuberays_command_line(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    flags = (
        "-storage-backend=localtest",
        f"--storage-root-dir={archive}",
        "--kube-api-qps=50",
        "--use-kubernetes-proxy",
    )
    with running(tmp_path, "historyserver", *flags, "--session-cache-size=5", "--session-cache-ttl=1h") as (
        process,
        port,
    ):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/clusters") as answer:
            assert b'"name":"demo"' in answer.read()
        assert "--session-cache-ttl has no effect" in process.log_tail()
        assert "running clusters are not shown: there is no kubeconfig" in process.log_tail()


def test_several_processes_answer_below_a_base_path(archive: Path, tmp_path: Path) -> None:
    flags = ("serve", "--storage", archive.as_uri(), "--workers", "2", "--base-path", "/history/")
    with running(tmp_path, "ray-history", *flags) as (_, port):
        for _ in range(6):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/history{S}/api/v0/nodes") as answer:
                assert b'"total": 2' in answer.read()
        workers = set[str]()
        for _ in range(6):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/history/metrics") as answer:
                workers |= set(re.findall(r'ray_history_requests_running\{worker="(\d+)"\} 1', answer.read().decode()))
        assert 1 <= len(workers) <= 2


def test_https(archive: Path, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    flags = ("serve", "--storage", archive.as_uri(), "--tls-cert", str(certificate), "--tls-key", str(key))
    with running(tmp_path, "ray-history", *flags) as (_, port):
        trusted = ssl.create_default_context(cafile=str(certificate))
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/livez", context=trusted) as answer:
            assert answer.read() == b"ok"


def test_the_server_stops_on_signals(archive: Path, tmp_path: Path) -> None:
    with running(tmp_path, "ray-history", "serve", "--storage", archive.as_uri()) as (process, port):
        urllib.request.urlopen(f"http://127.0.0.1:{port}{S}/api/v0/nodes").close()
        assert "NoNewPrivs:\t1" in Path(f"/proc/{process.pid}/status").read_text()
        os.kill(process.pid, signal.SIGTERM)
        assert exit_code(process) == 0
        assert "Traceback" not in process.log_tail()
        assert "leaked" not in process.log_tail(), "DuckDB complains at the end if a type of it is still referred to"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_shutdown_ends_streams_and_finishes_answers(
    tmp_path: Path, seaweedfs: SeaweedFS, fault_proxy: FaultProxyFactory, open_seaweedfs: OpenStore, workers: str
) -> None:
    for cluster in ("stuck", "open"):
        write_archive(open_seaweedfs(f"end{workers}"), Generation.C, Cluster("default", cluster))
    proxy = fault_proxy(seaweedfs.endpoint)
    proxy.hang(method="GET", path=f"/default/stuck/{captured().session}/")
    env = {**s3_variables(seaweedfs), "S3_ENDPOINT": proxy.url}
    flags = ("serve", "--storage", f"s3://tests/end{workers}", "--index-ahead", "0", "--workers", workers)
    node = next(node for node, name in captured().logs if name == "raylet.out")
    with running(tmp_path, "ray-history", *flags, env=env) as (process, port), ThreadPoolExecutor(3) as threads:

        def asked(cluster: str, path: str) -> HTTPResponse:
            address = f"http://127.0.0.1:{port}/s/default/{cluster}/{captured().session}/{path}"
            listening = urllib.request.Request(address, headers={"Accept": "text/event-stream"})
            answer: HTTPResponse = urllib.request.urlopen(listening, timeout=120)
            return answer

        waiting = threads.submit(asked, "stuck", "api/v0/nodes")
        progress = asked("stuck", "_status")
        log = asked("open", f"api/v0/logs/stream?node_id={node}&filename=raylet.out&lines=1")
        assert b'"ready":false' in progress.readline()
        assert log.readline()
        rest = [threads.submit(answer.read) for answer in (progress, log)]
        os.kill(process.pid, signal.SIGTERM)
        for read in rest:
            read.result()  # raises if the answer is cut off, as after the timeout of the shutdown
        assert not waiting.done()
        proxy.pass_through()
        assert b'"total": 2' in waiting.result().read()
        assert exit_code(process) == 0
        assert "timeout graceful shutdown exceeded" not in process.log_tail()


def exit_code(process: Process) -> int:
    assert process._child is not None
    return process._child.wait(60)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serve", "--storage", "file:///nowhere/at/all"), "no such directory"),
        (("serve", "--storage", "ftp://elsewhere/archive"), "storage"),
        (("serve", "--storage", "file:///tmp", "--port", "x"), "not a valid integer"),
        (("index", "--storage", "file:///tmp"), "no sessions given"),
        (("dashboard", "add", "newest"), "is not a Ray version"),
    ],
)
def test_a_wrong_command_line_is_reported_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = run_cli(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def self_signed(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "cert.pem", folder / "key.pem"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate_file, key_file
