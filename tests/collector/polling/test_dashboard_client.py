"""The dashboard's HTTP client: bounded in time and size, few kinds of errors, the token looked up for every request."""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from ray_history.collector.polling.dashboard_client import (
    ALONE_BYTES,
    Answer,
    BadStatus,
    Dashboard,
    Misconfigured,
    Refused,
    TimedOut,
    TooLarge,
    Unreachable,
    dashboard_url,
    ray_token,
)
from tests.support.waiting import until

from .dashboard_stand_in import DashboardStandIn


@pytest.fixture
def ray() -> Iterator[DashboardStandIn]:
    with DashboardStandIn() as stand_in:
        yield stand_in


def no_token() -> None:
    return None


@contextmanager
def raw_server(*pieces: bytes | float) -> Iterator[str]:
    """A server that sends these bytes, with these pauses, to the one client that comes."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            try:
                client, _ = listener.accept()
                with client:
                    client.recv(65536)
                    for piece in pieces:
                        if isinstance(piece, float):
                            over.wait(piece)
                        else:
                            client.sendall(piece)
            except OSError:
                return  # the client has gone, as it should

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


def test_the_answer_has_the_sent_bytes(ray: DashboardStandIn) -> None:
    ray.answers["/x?a=1&b=%3D"] = b"\x00any bytes"
    assert Dashboard(ray.url, no_token).get("/x?a=1&b=%3D", timeout=5) == Answer(200, b"\x00any bytes")
    assert ray.headers[0]["user-agent"].startswith("ray-history/")
    assert "x-ray-authorization" not in ray.headers[0]


def test_a_slash_at_the_end_of_the_base_url_is_not_doubled_and_its_path_is_used(ray: DashboardStandIn) -> None:
    ray.answers |= {"/timezone": b"{}", "/prefix/timezone": b"[]"}
    assert Dashboard(ray.url + "/", no_token).get("/timezone", timeout=5).body == b"{}"
    assert Dashboard(ray.url + "/prefix/", no_token).get("/timezone", timeout=5).body == b"[]"
    assert ray.requests == ["/timezone", "/prefix/timezone"]


@pytest.mark.parametrize("base", ["localhost:8265", "ftp://x", "http://", "http://u:p@x:1", "http://x:port", "/x"])
def test_an_address_that_cannot_be_right_is_refused_at_once(base: str) -> None:
    with pytest.raises(Misconfigured) as error:
        Dashboard(base, no_token)
    assert "u:p" not in str(error.value)


@pytest.mark.parametrize(
    ("status", "kind"), [(401, Refused), (403, Refused), (404, BadStatus), (500, BadStatus), (204, BadStatus)]
)
def test_every_other_status_is_an_error(ray: DashboardStandIn, status: int, kind: type[Exception]) -> None:
    ray.answers["/x"] = status, b""
    with pytest.raises(kind, match=str(status)):
        Dashboard(ray.url, no_token).get("/x", timeout=5)


def test_a_closed_port_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"no answer from http://127\.0\.0\.1:9"):
        Dashboard("http://127.0.0.1:9", no_token).get("/x", timeout=5)


def test_an_error_does_not_keep_what_was_read() -> None:
    body = b"x" * (8 << 20)
    tracemalloc.start()
    try:
        with (
            raw_server(b"HTTP/1.1 200 OK\r\n\r\n", body, 3600.0) as endless,
            pytest.raises(TooLarge) as error,
        ):
            Dashboard(endless, no_token, max_body=6 << 20).get("/large", timeout=200)
        assert tracemalloc.get_traced_memory()[0] < 3 << 20, error
    finally:
        tracemalloc.stop()


def test_large_answers_are_read_one_after_the_other_and_small_ones_beside_them(ray: DashboardStandIn) -> None:
    large = b"x" * (ALONE_BYTES + 1)
    ray.answers |= {"/large": large, "/small": b"{}"}
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (2 * len(large))
    with ThreadPoolExecutor() as threads, raw_server(head, large, 3600.0) as endless:
        first = Dashboard(endless, no_token)
        second = Dashboard(ray.url, no_token, turn=first.turn)
        reading = threads.submit(first.get, "/x", timeout=200)
        until(first.turn.locked)
        with pytest.raises(TimedOut):
            second.get("/large", timeout=0.5)
        assert second.get("/small", timeout=30).body == b"{}"
        assert not reading.done()
    with pytest.raises(Unreachable):
        reading.result()
    assert second.get("/large", timeout=30).body == large


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (b"nonsense\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345",),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n123",),
    ],
    ids=["hangs up", "no HTTP", "body cut short", "chunks cut short", "chunk cut short"],
)
def test_an_answer_that_breaks_off_is_not_an_answer(pieces: tuple[bytes, ...]) -> None:
    with raw_server(*pieces) as url, pytest.raises(Unreachable):
        Dashboard(url, no_token).get("/x", timeout=5)


def test_chunks_are_put_together() -> None:
    with raw_server(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[1\r\n1\r\n]\r\n0\r\n\r\n") as url:
        assert Dashboard(url, no_token).get("/x", timeout=5).body == b"[1]"


@pytest.mark.parametrize(
    "pieces",
    [
        (30.0,),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", 30.0),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", *[b"x", 0.05] * 1000),
    ],
    ids=["never answers", "never goes on", "drips"],
)
def test_the_timeout_is_for_the_whole_answer(pieces: tuple[bytes | float, ...]) -> None:
    started = time.monotonic()
    with raw_server(*pieces) as url, pytest.raises(Unreachable, match="timed out"):
        Dashboard(url, no_token).get("/x", timeout=0.3)
    assert time.monotonic() - started < 20


def test_a_body_over_the_limit_is_not_read(ray: DashboardStandIn) -> None:
    ray.answers |= {"/fits": b"x" * 100, "/does-not": b"x" * 101}
    dashboard = Dashboard(ray.url, no_token, max_body=100)
    assert len(dashboard.get("/fits", timeout=5).body) == 100
    with pytest.raises(TooLarge):
        dashboard.get("/does-not", timeout=5)
    with (
        raw_server(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 300) as url,  # of a length that nobody announced
        pytest.raises(TooLarge),
    ):
        Dashboard(url, no_token, max_body=100).get("/x", timeout=5)


def test_a_path_with_a_line_break_is_not_sent(ray: DashboardStandIn) -> None:
    with pytest.raises(Misconfigured):
        Dashboard(ray.url, no_token).get("/x\r\nEvil: 1", timeout=5)
    assert ray.requests == []


def test_the_token_is_looked_up_for_every_request(ray: DashboardStandIn, tmp_path: Path) -> None:
    file = tmp_path / "token"
    dashboard = Dashboard(ray.url, lambda: ray_token({"RAY_ENABLE_K8S_TOKEN_AUTH": "true"}, file))
    for token in ("first", "renewed"):
        file.write_text(token + "\n")
        ray.token = token
        assert dashboard.get("/timezone", timeout=5).status == 200
    ray.token = "other"
    with pytest.raises(Refused) as error:
        dashboard.get("/timezone", timeout=5)
    assert "renewed" not in str(error.value)
    file.unlink()
    with pytest.raises(Misconfigured):
        dashboard.get("/timezone", timeout=5)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"RAY_AUTH_TOKEN": " t \n"}, "t"),
        ({"RAY_AUTH_TOKEN": "t", "RAY_AUTH_MODE": "disabled"}, "t"),
        ({"RAY_AUTH_TOKEN": "t", "RAY_AUTH_MODE": "token"}, "t"),
        ({"RAY_AUTH_MODE": "disabled"}, None),
        ({"RAY_AUTH_TOKEN": "  "}, None),
        ({"RAY_AUTH_TOKEN": "t", "RAY_ENABLE_K8S_TOKEN_AUTH": "1"}, "from-file"),
        ({"RAY_AUTH_TOKEN": "t", "RAY_ENABLE_K8S_TOKEN_AUTH": "True"}, "from-file"),
        ({"RAY_AUTH_TOKEN": "t", "RAY_ENABLE_K8S_TOKEN_AUTH": "false"}, "t"),
        ({"RAY_AUTH_TOKEN": "t", "RAY_ENABLE_K8S_TOKEN_AUTH": "yes"}, "t"),
        ({"RAY_AUTH_TOKEN_PATH": "path"}, "from-path"),
        ({"RAY_AUTH_TOKEN_PATH": "path", "HOME": "home"}, "from-path"),
        ({"RAY_AUTH_TOKEN_PATH": "", "HOME": "home"}, "from-home"),
        ({"RAY_AUTH_TOKEN_PATH": "path", "RAY_AUTH_TOKEN": "t"}, "t"),
        ({"RAY_AUTH_TOKEN_PATH": "path", "RAY_AUTH_TOKEN": ""}, "from-path"),
        ({"RAY_AUTH_TOKEN_PATH": "path", "RAY_AUTH_TOKEN": " "}, None),
        ({"HOME": "home"}, "from-home"),
        ({"HOME": "home", "RAY_AUTH_MODE": "token"}, "from-home"),
        ({"HOME": "."}, None),
        ({"RAY_AUTH_TOKEN_PATH": "path", "RAY_ENABLE_K8S_TOKEN_AUTH": "1"}, "from-file"),
    ],
)
def test_the_token_is_chosen_in_rays_order(
    environ: dict[str, str], expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("file", "path", "home/.ray/auth_token"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f" from-{name.partition('/')[0]}\n")
    assert ray_token(environ, tmp_path / "file") == expected


def test_a_token_that_ray_writes_later_ends_the_refusals(ray: DashboardStandIn, tmp_path: Path) -> None:
    ray.token = "created by ray.init".replace(" ", "-")
    dashboard = Dashboard(ray.url, lambda: ray_token({"HOME": str(tmp_path)}))
    with pytest.raises(Refused, match="RAY_AUTH_TOKEN_PATH"):
        dashboard.get("/timezone", timeout=5)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text(ray.token)
    assert dashboard.get("/timezone", timeout=5).status == 200


@pytest.mark.parametrize(
    ("environ", "in_file"),
    [
        ({"RAY_AUTH_MODE": "Token"}, None),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": " "}, None),
        ({"RAY_AUTH_TOKEN": "t", "RAY_ENABLE_K8S_TOKEN_AUTH": "true"}, None),
        ({"RAY_AUTH_TOKEN": "t", "RAY_ENABLE_K8S_TOKEN_AUTH": "true"}, b" \n"),
        ({"RAY_ENABLE_K8S_TOKEN_AUTH": "true"}, b"\xff\xfe"),
        ({"RAY_AUTH_TOKEN_PATH": "/nonexistent/token"}, None),
        ({"RAY_AUTH_TOKEN_PATH": "~/.ray/auth_token"}, None),
        ({"RAY_AUTH_TOKEN": "se\r\ncret"}, None),
        ({"RAY_AUTH_TOKEN": "se cret"}, None),
    ],
)
def test_a_required_but_missing_credential_is_a_configuration_error(
    environ: dict[str, str], in_file: bytes | None, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    if in_file is not None:
        file.write_bytes(in_file)
    with pytest.raises(Misconfigured) as error:
        ray_token(environ, file)
    assert "cret" not in str(error.value)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("head", "http://head:8265"),
        ("head.ns.svc.cluster.local/", "http://head.ns.svc.cluster.local:8265"),
        ("head:9000", "http://head:9000"),
        ("http://head:9000//", "http://head:9000"),
        ("https://head", "https://head:8265"),
        ("https://head/prefix/", "https://head:8265/prefix"),
        ("10.0.0.1", "http://10.0.0.1:8265"),
        ("fd00::1", "http://[fd00::1]:8265"),
        ("[fd00::1]:9000", "http://[fd00::1]:9000"),
        ("http://[fd00::1]", "http://[fd00::1]:8265"),
    ],
)
def test_the_address_of_a_head_becomes_the_address_of_its_dashboard(address: str, expected: str) -> None:
    assert dashboard_url(address) == expected
    Dashboard(expected, no_token)
