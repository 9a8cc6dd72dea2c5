"""A stand-in for the Kubernetes API server that behaves like it in the calls of this project.

* Lists: pages by `limit` and `continue`, all of one version; a page requested after `compact` is 410 Gone.
* Watches: from a resource version on, with bookmarks; from a version before `compact` a 410 in an ERROR line.
* TokenReview and SubjectAccessReview, 401 for unknown tokens, 403 for denied requests, both as Status objects.
* The service proxy, for HTTP and web sockets; 404 without the service, 503 without endpoints.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web

from .aiohttp_stand_in import AiohttpStandIn

RAY_CLUSTERS = ("ray.io", "rayclusters")
_LISTED = {
    ("apis", "ray.io", "v1", "rayclusters"): "RayCluster",
    ("api", "", "v1", "secrets"): "Secret",
    ("api", "", "v1", "services"): "Service",
    ("api", "", "v1", "namespaces"): "Namespace",
}
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host", "content-length"}


@dataclass(frozen=True)
class Rule:
    """What a user may do; `*` and empty names match everything."""

    user: str
    verb: str
    resource: str
    namespace: str = ""
    name: str = ""

    def allows(self, user: str, groups: list[str], verb: str, resource: str, namespace: str, name: str) -> bool:
        return (
            self.user in (user, "*", *(f"group:{group}" for group in groups))
            and self.verb in (verb, "*")
            and self.resource in (resource, "*")
            and self.namespace in ("", namespace)
            and self.name in ("", name)
        )


@dataclass(frozen=True)
class Person:
    """A user with a token."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = "1"
    audiences: tuple[str, ...] = ("https://kubernetes.default.svc",)


@dataclass
class KubeStandIn(AiohttpStandIn):
    """The API server. The user `admin` has the token `admin-token` and every right."""

    tls: ssl.SSLContext | None = None
    people: dict[str, Person] = field(default_factory=lambda: {"admin-token": Person("admin", ("system:masters",))})
    rules: list[Rule] = field(default_factory=lambda: [Rule("admin", "*", "*")])
    backends: dict[tuple[str, str], str] = field(default_factory=dict)
    """The `host:port` behind a service, by its namespace and name; empty without endpoints."""
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """The method, the path with its query, and the headers of every request."""
    page_break: bool = False
    """Whether the server compacts its history between two pages of a list."""
    port: int = 0

    def __post_init__(self) -> None:
        self._version = 100
        self._oldest = 0
        self._things: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._log: list[tuple[int, str, str, dict[str, Any]]] = []
        self._pages: dict[str, tuple[int, list[dict[str, Any]]]] = {}
        self._changed = asyncio.Event()
        self._watches: dict[int, web.Request] = {}

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def kubeconfig(self, token: str = "admin-token", authority: str | None = None) -> str:  # noqa: S107
        """A kubeconfig for this server; JSON is YAML."""
        cluster: dict[str, Any] = {"server": self.url}
        if authority:
            cluster["certificate-authority-data"] = base64.b64encode(authority.encode()).decode()
        return json.dumps(
            {
                "current-context": "test",
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                "clusters": [{"name": "test", "cluster": cluster}],
                "users": [{"name": "test", "user": {"token": token}}],
            }
        )

    # Called by tests, from their own thread.

    def put(self, kind: str, thing: dict[str, Any]) -> dict[str, Any]:
        """Create or replace a thing."""
        return self._do(self._put, kind, thing)  # type: ignore[no-any-return]

    def delete(self, kind: str, namespace: str, name: str) -> None:
        self._do(self._delete, kind, namespace, name)

    def compact(self) -> None:
        """Compact the history, as etcd does every five minutes."""

        def forget() -> None:
            self._oldest = self._version
            self._pages.clear()

        self._do(forget)

    def end_watches(self) -> None:
        """End every watch, as a restart of the API server does."""

        self._do(self._cut)

    @property
    def watching(self) -> int:
        return len(self._watches)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Stop listening for a while, as an API server that is down."""
        asyncio.run_coroutine_threadsafe(self._silence(), self._loop).result(20)
        try:
            yield
        finally:
            asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(20)

    def _do(self, call: Any, *arguments: Any) -> Any:
        async def run() -> Any:
            return call(*arguments)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(20)

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        app.cleanup_ctx.append(self._with_client)
        app.on_shutdown.append(self._cut_watches)
        return app

    async def _with_client(self, _: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()) as self._client:
            yield

    async def _cut_watches(self, _: web.Application) -> None:
        self._cut()

    async def _silence(self) -> None:
        await self._site.stop()
        self._cut()
        server = self._runner.server
        assert server is not None
        for connection in list(server.connections):
            connection.force_close()
            if connection.transport is not None:
                connection.transport.abort()

    def _cut(self) -> None:
        for request in self._watches.values():
            if request.transport is not None:
                request.transport.abort()

    # The API server.

    def _put(self, kind: str, thing: dict[str, Any]) -> dict[str, Any]:
        about = thing.setdefault("metadata", {})
        key = (kind, about.get("namespace", ""), about["name"])
        self._version += 1
        current = self._things.get(key)
        about.setdefault("uid", current["metadata"]["uid"] if current else f"uid-{self._version}")
        about.setdefault("creationTimestamp", "2026-11-15T20:55:00Z")
        about["resourceVersion"] = str(self._version)
        stored = copy.deepcopy(thing)
        stored["kind"] = kind
        self._things[key] = stored
        self._note("MODIFIED" if current else "ADDED", kind, stored)
        return stored

    def _delete(self, kind: str, namespace: str, name: str) -> None:
        thing = copy.deepcopy(self._things.pop((kind, namespace, name)))
        self._version += 1
        thing["metadata"]["resourceVersion"] = str(self._version)
        self._note("DELETED", kind, thing)

    def _note(self, change: str, kind: str, thing: dict[str, Any]) -> None:
        self._log.append((self._version, change, kind, thing))
        self._changed.set()
        self._changed = asyncio.Event()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.raw_path, dict(request.headers)))
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        person = self.people.get(token) if scheme == "Bearer" else self._by_certificate(request)
        if person is None:
            return _status(401, "Unauthorized", "Unauthorized")
        parts = request.raw_path.partition("?")[0].strip("/").split("/")
        match parts:
            case ["apis", "authentication.k8s.io", "v1", "tokenreviews"] if request.method == "POST":
                refused = self._refused(person, "create", "tokenreviews")
                return refused if refused is not None else self._token_review(await request.json())
            case ["apis", "authorization.k8s.io", "v1", "subjectaccessreviews"] if request.method == "POST":
                refused = self._refused(person, "create", "subjectaccessreviews")
                return refused if refused is not None else _access_review(await request.json(), self.rules)
            case ["api", "v1", "namespaces", namespace, "services", service, "proxy", *rest]:
                name = service.partition(":")[0]
                refused = self._refused(person, "get", "services/proxy", namespace, name)
                if refused is not None:
                    return refused
                return await self._proxied(request, namespace, service, "/".join(rest))
            case ["api", "v1", *rest]:
                return await self._things_of(request, person, ("api", "", "v1"), rest)
            case ["apis", group, version, *rest]:
                return await self._things_of(request, person, ("apis", group, version), rest)
        return _status(404, "NotFound", "the server could not find the requested resource")

    def _by_certificate(self, request: web.Request) -> Person | None:
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        names = [
            value for pairs in (certificate or {}).get("subject", ()) for key, value in pairs if key == "commonName"
        ]
        return Person(names[0]) if names else None

    def _refused(
        self, person: Person, verb: str, resource: str, namespace: str = "", name: str = "", group: str = ""
    ) -> web.Response | None:
        if any(r.allows(person.name, list(person.groups), verb, resource, namespace, name) for r in self.rules):
            return None
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        full = f"{resource}.{group}" if group else resource
        cannot = f'User "{person.name}" cannot {verb} resource "{resource}" in API group "{group}" {where}'
        return _status(403, "Forbidden", f"{full} is forbidden: {cannot}")

    async def _things_of(
        self, request: web.Request, person: Person, home: tuple[str, str, str], rest: list[str]
    ) -> web.StreamResponse:
        namespace = ""
        if len(rest) >= 3 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        kind = _LISTED.get((*home, rest[0])) if len(rest) in (1, 2) else None
        if kind is None:
            return _status(404, "NotFound", "the server could not find the requested resource")
        name = rest[1] if len(rest) == 2 else ""
        watching = request.query.get("watch") in ("1", "true")
        verb = "get" if name else "watch" if watching else "list"
        if request.method in ("POST", "DELETE"):
            verb = {"POST": "create", "DELETE": "delete"}[request.method]
        refused = self._refused(person, verb, rest[0], namespace, name, home[1])
        if refused is not None:
            return refused
        if verb == "create":
            body = await request.json()
            if body.get("kind") != kind:
                return _status(400, "BadRequest", "Object 'Kind' is missing")
            return web.json_response(self._put(kind, body), status=201)
        if verb == "delete":
            self._delete(kind, namespace, name)
            return _status(200, "", "")
        if name:
            thing = self._things.get((kind, namespace, name))
            full = f"{rest[0]}.{home[1]}" if home[1] else rest[0]
            return web.json_response(thing) if thing else _status(404, "NotFound", f'{full} "{name}" not found')
        if watching:
            return await self._watch(request, kind, namespace)
        return self._list(request, kind, namespace)

    def _list(self, request: web.Request, kind: str, namespace: str) -> web.Response:
        version, things = (
            self._version,
            [
                thing
                for (of, at, _), thing in sorted(self._things.items())
                if of == kind and namespace in ("", at) and _matches(thing, request.query.get("labelSelector", ""))
            ],
        )
        if token := request.query.get("continue"):
            if token not in self._pages:
                return _status(410, "Expired", "The provided continue parameter is too old")
            version, things = self._pages.pop(token)
        limit = int(request.query.get("limit", "0")) or len(things) or 1
        about: dict[str, Any] = {"resourceVersion": str(version)}
        if len(things) > limit:
            token = base64.b64encode(f"{version}+/{len(self.requests)}".encode()).decode()
            if not self.page_break:
                self._pages[token] = version, things[limit:]
            about |= {"continue": token, "remainingItemCount": len(things) - limit}
        return web.json_response({"kind": f"{kind}List", "metadata": about, "items": things[:limit]})

    async def _watch(self, request: web.Request, kind: str, namespace: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        self._watches[id(request)] = request
        try:
            await response.prepare(request)
            async with asyncio.timeout(float(request.query.get("timeoutSeconds", "1800"))):
                await self._tell_changes(request, response, kind, namespace)
        except TimeoutError:
            await response.write_eof()
        finally:
            self._watches.pop(id(request))
        return response

    async def _tell_changes(
        self, request: web.Request, response: web.StreamResponse, kind: str, namespace: str
    ) -> None:
        seen = int(request.query.get("resourceVersion") or "0")
        bookmarks = request.query.get("allowWatchBookmarks") == "true"
        if seen < self._oldest:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": f"too old resource version: {seen}"}
            await response.write(_line("ERROR", gone))
            return
        while True:
            changed = self._changed
            for version, change, of, thing in list(self._log):
                if version > seen and of == kind and namespace in ("", thing["metadata"].get("namespace", "")):
                    await response.write(_line(change, thing))
            if bookmarks and seen != self._version:
                mark = {"kind": kind, "metadata": {"resourceVersion": str(self._version), "creationTimestamp": None}}
                await response.write(_line("BOOKMARK", mark))
            seen = self._version
            await changed.wait()

    def _token_review(self, body: Mapping[str, Any]) -> web.Response:
        spec = body["spec"]
        person = self.people.get(spec["token"])
        wanted = spec.get("audiences") or ["https://kubernetes.default.svc"]
        meant = [audience for audience in wanted if person and audience in person.audiences]
        status: dict[str, Any] = {"user": {}, "error": "[invalid bearer token, token lookup failed]"}
        if person and meant:
            user = {"username": person.name, "uid": person.uid, "groups": [*person.groups, "system:authenticated"]}
            status = {"authenticated": True, "user": user, "audiences": meant}
        return web.json_response({**body, "status": status}, status=201)

    async def _proxied(self, request: web.Request, namespace: str, service: str, rest: str) -> web.StreamResponse:
        name = service.partition(":")[0]
        if (namespace, name) not in self.backends:
            return _status(404, "NotFound", f'services "{name}" not found')
        backend = self.backends[namespace, name]
        if not backend:
            return _status(503, "ServiceUnavailable", f'no endpoints available for service "{service}"')
        query = request.raw_path.partition("?")[2]
        url = f"http://{backend}/{rest}" + (f"?{query}" if query else "")
        headers = {k: v for k, v in request.headers.items() if k.lower() not in {*_HOP_BY_HOP, "authorization"}}
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._proxied_socket(request, url, headers)
        try:
            async with self._client.request(
                request.method, url, headers=headers, allow_redirects=False, timeout=aiohttp.ClientTimeout(None)
            ) as found:
                passed = {k: v for k, v in found.headers.items() if k.lower() not in _HOP_BY_HOP}
                response = web.StreamResponse(status=found.status, headers=passed)
                await response.prepare(request)
                async for piece in found.content.iter_any():
                    await response.write(piece)
                return response
        except aiohttp.ClientConnectorError as error:
            return _status(503, "ServiceUnavailable", f"error trying to reach service: {error}")

    async def _proxied_socket(self, request: web.Request, url: str, headers: dict[str, str]) -> web.StreamResponse:
        headers = {k: v for k, v in headers.items() if not k.lower().startswith("sec-websocket")}
        async with self._client.ws_connect(url, headers=headers) as behind:
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            with suppress(ConnectionError):
                async for message in behind:
                    await socket.send_str(message.data)
            await socket.close()
            return socket


def _line(kind: str, thing: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


def _matches(thing: dict[str, Any], selector: str) -> bool:
    labels = thing["metadata"].get("labels") or {}
    pairs = [part.partition("=") for part in selector.split(",") if part]
    return all(labels.get(key) == value for key, _, value in pairs)


def _access_review(body: Mapping[str, Any], rules: list[Rule]) -> web.Response:
    spec = body["spec"]
    wanted = spec["resourceAttributes"]
    resource = wanted["resource"] + (f"/{wanted['subresource']}" if wanted.get("subresource") else "")
    allowed = any(
        rule.allows(
            spec.get("user", ""),
            spec.get("groups") or [],
            wanted["verb"],
            resource,
            wanted.get("namespace", ""),
            wanted.get("name", ""),
        )
        for rule in rules
    )
    return web.json_response({**body, "status": {"allowed": allowed}}, status=201)


def _status(code: int, reason: str, message: str) -> web.Response:
    kind = "Success" if code == 200 else "Failure"
    return web.json_response(
        {"kind": "Status", "apiVersion": "v1", "status": kind, "message": message, "reason": reason, "code": code},
        status=code,
    )


def ray_cluster(
    namespace: str,
    name: str,
    *,
    service: str | None = "",
    owner: tuple[str, str] | None = None,
    spec: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A RayCluster as KubeRay writes it once its head is ready; `service=None` while it is not."""
    about: dict[str, Any] = {"namespace": namespace, "name": name}
    if owner:
        kind, owner_name = owner
        about["ownerReferences"] = [
            {"apiVersion": "ray.io/v1", "kind": kind, "name": owner_name, "controller": True, "uid": "u"}
        ]
        about["labels"] = {"ray.io/originated-from-cr-name": owner_name, "ray.io/originated-from-crd": kind}
    head = {"podName": f"{name}-head-x", "podIP": "10.0.0.7"}
    if service is not None:
        head["serviceName"] = service or f"{name}-head-svc"
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": about,
        "spec": {"rayVersion": "2.60.0", "headGroupSpec": {"template": {"spec": {"containers": [{}]}}}, **(spec or {})},
        "status": {"state": "ready", "head": head},
    }
