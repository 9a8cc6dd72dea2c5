"""The client of the Kubernetes API, with the stand-in and, if configured, a real API server."""

from __future__ import annotations

import asyncio
import base64
import datetime
import ipaddress
import json
import ssl
import sys
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ray_history.kube import (
    Attributes,
    Change,
    Denied,
    Gone,
    Kubernetes,
    Misconfigured,
    NotFound,
    Unreachable,
    User,
    in_cluster,
    resource_path,
)
from ray_history.kube import client as client_module
from tests.kube.world import World, within
from tests.support.kube_stand_in import KubeStandIn, Person, Rule, ray_cluster

pytestmark = pytest.mark.timeout(120)
ALL = "/apis/ray.io/v1/rayclusters"


@pytest.fixture
def stand_in() -> Iterator[KubeStandIn]:
    with KubeStandIn().running() as server:
        yield server


def of(world: World) -> str:
    return resource_path("ray.io/v1", "rayclusters", world.namespace)


def test_objects_are_listed_in_pages_of_one_moment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_PAGE", 2)
    for number in range(5):
        world.create(ray_cluster(world.namespace, f"c{number}"))
    listing = world.ask(lambda kubernetes: kubernetes.list(of(world)))
    assert [item["metadata"]["name"] for item in listing.items] == [f"c{number}" for number in range(5)]
    assert int(listing.resource_version) > 0


def test_a_list_that_expires_between_pages_is_fetched_at_once(
    stand_in: KubeStandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_PAGE", 2)
    stand_in.page_break = True
    for number in range(5):
        stand_in.put("RayCluster", ray_cluster("team", f"c{number}"))
    world = _world(stand_in, tmp_path)
    assert len(world.ask(lambda kubernetes: kubernetes.list(ALL)).items) == 5
    assert [path.count("continue") for _, path, _ in stand_in.requests] == [0, 1, 0]


def test_one_object_is_read_and_a_missing_one_is_not_found(world: World) -> None:
    world.create(ray_cluster(world.namespace, "demo"))
    path = resource_path("ray.io/v1", "rayclusters", world.namespace, "demo")
    assert world.ask(lambda kubernetes: kubernetes.get(path))["spec"]["rayVersion"] == "2.60.0"
    with pytest.raises(NotFound, match="nobody"):
        world.ask(lambda kubernetes: kubernetes.get(path.replace("demo", "nobody")))


def test_a_watch_reports_changes_after_the_list(world: World) -> None:
    world.create(ray_cluster(world.namespace, "before"))

    async def follow(kubernetes: Kubernetes) -> list[Change]:
        listing = await kubernetes.list(of(world))
        await asyncio.to_thread(world.create, ray_cluster(world.namespace, "after"))
        await asyncio.to_thread(world.delete, "before")
        seen: list[Change] = []
        async with aclosing(kubernetes.watch(of(world), listing.resource_version)) as changes:
            async for change in changes:
                if change.kind != "BOOKMARK":
                    seen.append(change)
                if change.kind == "DELETED":
                    return seen
        return seen

    seen = world.ask(lambda kubernetes: within(60, follow(kubernetes)))
    told = [(change.kind, change.object["metadata"]["name"]) for change in seen]
    assert told[0] == ("ADDED", "after")
    assert told[-1] == ("DELETED", "before")


def test_a_watch_from_too_long_ago_is_gone(world: World) -> None:
    if world.stand_in is not None:
        world.stand_in.compact()

    async def follow(kubernetes: Kubernetes) -> None:
        async with aclosing(kubernetes.watch(of(world), "1")) as changes:
            async for change in changes:
                assert change == Change("BOOKMARK", {"metadata": {"resourceVersion": "1"}})

    with pytest.raises(Gone, match="too old"):
        world.ask(lambda kubernetes: within(60, follow(kubernetes)))


def test_a_watch_continues_after_a_bookmark(stand_in: KubeStandIn, tmp_path: Path) -> None:
    async def follow(kubernetes: Kubernetes) -> list[tuple[str, str]]:
        listing = await kubernetes.list(ALL)
        await asyncio.to_thread(stand_in.put, "Secret", {"metadata": {"namespace": "team", "name": "other"}})
        seen = []
        async for change in kubernetes.watch(ALL, listing.resource_version):
            seen.append((change.kind, change.resource_version))
            if len(seen) == 2:
                break
        return seen

    assert _world(stand_in, tmp_path).ask(follow) == [("BOOKMARK", "100"), ("BOOKMARK", "101")]


def test_lines_of_a_watch_may_be_longer_than_a_readers_buffer(stand_in: KubeStandIn, tmp_path: Path) -> None:
    async def follow(kubernetes: Kubernetes) -> int:
        large = ray_cluster("team", "large", spec={"note": "x" * 1_000_000})
        await asyncio.to_thread(stand_in.put, "RayCluster", large)
        async for change in kubernetes.watch(ALL, "100"):
            if change.kind == "ADDED":
                return len(change.object["spec"]["note"])
        return 0

    assert _world(stand_in, tmp_path).ask(follow) == 1_000_000


def test_a_token_is_reviewed(world: World) -> None:
    if world.stand_in is not None:
        world.stand_in.people["t0k"] = Person("ann", ("dev",), audiences=("ray-history",))
        found = world.ask(lambda kubernetes: kubernetes.create_token_review("t0k", ["ray-history", "other"]))
        assert found.user == User("ann", "1", ("dev", "system:authenticated"))
        assert found.audiences == ("ray-history",)
        elsewhere = world.ask(lambda kubernetes: kubernetes.create_token_review("t0k", ["elsewhere"]))
        assert elsewhere.user is None
    unknown = world.ask(lambda kubernetes: kubernetes.create_token_review("nonsense"))
    assert unknown.user is None


def test_access_is_reviewed(world: World) -> None:
    wanted = Attributes("get", "rayclusters", world.namespace, "demo", "ray.io")
    ask = lambda user: world.ask(lambda kubernetes: kubernetes.create_subject_access_review(user, wanted))  # noqa: E731
    assert ask(User("nobody-at-all")) is False
    if world.stand_in is not None:
        world.stand_in.rules.append(Rule("group:dev", "get", "rayclusters", "team"))
        assert ask(User("ann", groups=("dev",))) is True
        assert ask(User("ann", groups=("ops",))) is False
    else:
        assert ask(User("root", groups=("system:masters",))) is True


def test_wrong_credentials_and_missing_permission_are_different_errors(stand_in: KubeStandIn, tmp_path: Path) -> None:
    stand_in.people["weak"] = Person("system:serviceaccount:team:history")
    with pytest.raises(Denied, match="cannot list resource") as denied:
        _world(stand_in, tmp_path, "weak").ask(lambda kubernetes: kubernetes.list(ALL))
    assert denied.value.status == 403
    with pytest.raises(Denied, match="rejected the credentials") as unknown:
        _world(stand_in, tmp_path, "wrong").ask(lambda kubernetes: kubernetes.list(ALL))
    assert unknown.value.status == 401


def test_a_closed_port_is_unreachable(stand_in: KubeStandIn, tmp_path: Path) -> None:
    with stand_in.down(), pytest.raises(Unreachable, match="cannot be reached"):
        _world(stand_in, tmp_path).ask(lambda kubernetes: kubernetes.list(ALL))
    assert _world(stand_in, tmp_path).ask(lambda kubernetes: kubernetes.list(ALL)).items == []


def test_names_from_outside_never_change_the_path() -> None:
    for name in ("../secrets", "a/b", "A", "x?watch=1", "", "a" * 300):
        if name:
            with pytest.raises(NotFound):
                resource_path("v1", "services", "team", name)
    assert resource_path("v1", "services", "team", "demo-head-svc") == "/api/v1/namespaces/team/services/demo-head-svc"


def test_requests_are_limited_in_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = 0.0, []

    async def sleep(seconds: float) -> None:
        slept.append(round(seconds, 3))

    monkeypatch.setattr(client_module.time, "monotonic", lambda: now)
    monkeypatch.setattr(client_module.asyncio, "sleep", sleep)
    pace = client_module._Pace(10, 2)

    async def ask() -> None:
        for _ in range(4):
            await pace.wait()

    asyncio.run(ask())
    assert slept == [0.1, 0.2]


# Credentials for the API server.


def test_a_pods_token_is_read_again_after_it_was_renewed(tmp_path: Path) -> None:
    server = KubeStandIn(tls=_server_tls(_authority_of(tmp_path), tmp_path))
    with server.running():
        (tmp_path / "ca.crt").write_text((tmp_path / "authority.pem").read_text())
        (tmp_path / "token").write_text("first\n")
        server.people = {"first": Person("admin")}
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}

        async def twice() -> int:
            kubernetes = Kubernetes(in_cluster(environ, tmp_path))
            try:
                await kubernetes.list(ALL)
                server.people = {"second": Person("admin")}
                (tmp_path / "token").write_text("second\n")
                return len((await kubernetes.list(ALL)).items)
            finally:
                await kubernetes.close()

        assert asyncio.run(twice()) == 0
        sent = [headers["Authorization"] for _, _, headers in server.requests]
        assert sent == ["Bearer first", "Bearer first", "Bearer second"]


def test_a_server_with_an_unknown_authority_gets_no_request(tmp_path: Path) -> None:
    server = KubeStandIn(tls=_server_tls(_authority_of(tmp_path), tmp_path))
    with server.running():
        other = _authority()[0].public_bytes(serialization.Encoding.PEM).decode()
        (tmp_path / "kubeconfig").write_text(server.kubeconfig(authority=other))
        with pytest.raises(Unreachable, match="certificate"):
            World(tmp_path / "kubeconfig", "team").ask(lambda kubernetes: kubernetes.list(ALL))
        assert server.requests == []


def test_a_client_certificate_in_the_kubeconfig_is_presented(tmp_path: Path) -> None:
    authority = _authority_of(tmp_path)
    server = KubeStandIn(tls=_server_tls(authority, tmp_path))
    with server.running():
        certificate, key = _signed(authority, "admin")
        config = json.loads(server.kubeconfig(authority=(tmp_path / "authority.pem").read_text()))
        config["users"][0]["user"] = {
            "client-certificate-data": base64.b64encode(certificate).decode(),
            "client-key-data": base64.b64encode(key).decode(),
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        assert World(tmp_path / "kubeconfig", "team").ask(lambda kubernetes: kubernetes.list(ALL)).items == []


def test_an_exec_plugin_runs_again_when_its_token_is_refused(stand_in: KubeStandIn, tmp_path: Path) -> None:
    plugin = tmp_path / "login.py"
    plugin.write_text(
        f"#!{sys.executable}\n"
        "import json, os, pathlib, sys\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "assert info['spec']['interactive'] is False and info['spec']['cluster']['server'].startswith('http')\n"
        "count = pathlib.Path(os.environ['COUNT'])\n"
        "number = int(count.read_text() or 0) + 1 if count.exists() else 1\n"
        "count.write_text(str(number))\n"
        "print(json.dumps({'kind': 'ExecCredential', 'apiVersion': info['apiVersion'],\n"
        "                  'status': {'token': f'{sys.argv[1]}-{number}'}}))\n"
    )
    plugin.chmod(0o755)
    config = json.loads(stand_in.kubeconfig())
    config["users"][0]["user"] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "./login.py",
            "args": ["token"],
            "env": [{"name": "COUNT", "value": str(tmp_path / "count")}],
            "provideClusterInfo": True,
            "interactiveMode": "Never",
        }
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    stand_in.people = {"token-2": Person("admin")}
    assert World(tmp_path / "kubeconfig", "team").ask(lambda kubernetes: kubernetes.list(ALL)).items == []
    assert (tmp_path / "count").read_text() == "2"


def test_outside_of_kubernetes_the_message_says_what_to_do() -> None:
    with pytest.raises(Misconfigured, match="--kubeconfigs"):
        in_cluster({})


def _world(server: KubeStandIn, folder: Path, token: str = "admin-token") -> World:  # noqa: S107
    (folder / "kubeconfig").write_text(server.kubeconfig(token))
    return World(folder / "kubeconfig", "team", server)


Authority = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def _authority() -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])
    built = _builder(name, key.public_key(), name).add_extension(x509.BasicConstraints(True, None), critical=True)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    built = built.add_extension(usage, critical=True)
    built = built.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return built.sign(key, hashes.SHA256()), key


def _authority_of(folder: Path) -> Authority:
    made = _authority()
    (folder / "authority.pem").write_bytes(made[0].public_bytes(serialization.Encoding.PEM))
    return made


def _signed(authority: Authority, name: str) -> tuple[bytes, bytes]:
    certificate, authority_key = authority
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    built = _builder(subject, key.public_key(), certificate.subject).add_extension(names, critical=False)
    signed = built.add_extension(issuer, critical=False).sign(authority_key, hashes.SHA256())
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return signed.public_bytes(serialization.Encoding.PEM), pem


def _builder(subject: x509.Name, key: ec.EllipticCurvePublicKey, issuer: x509.Name) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + day)


def _server_tls(authority: Authority, folder: Path) -> ssl.SSLContext:
    """TLS with a server certificate of that authority; client certificates of it are accepted."""
    certificate, key = _signed(authority, "127.0.0.1")
    (folder / "server.pem").write_bytes(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    context.load_verify_locations(folder / "authority.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
