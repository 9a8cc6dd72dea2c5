"""A Ray Serve application of two deployments, which answers and then serves until its cluster dies."""

import os
import time
import urllib.request
from pathlib import Path

from ray import serve
from ray.serve.handle import DeploymentHandle


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.1})
class Doubles:
    def __call__(self, n: int) -> int:
        return n * 2


@serve.deployment(ray_actor_options={"num_cpus": 0.1}, user_config={"greeting": "hello"})
class Front:
    def __init__(self, doubles: DeploymentHandle) -> None:
        self.doubles = doubles

    def reconfigure(self, config: dict[str, str]) -> None:
        self.greeting = config["greeting"]

    async def __call__(self, request: object) -> str:
        return f"{self.greeting} {await self.doubles.remote(21)}"


port = int(os.environ["SERVE_PORT"])
serve.start(http_options={"host": "127.0.0.1", "port": port})
serve.run(Front.bind(Doubles.bind()), name="greets", route_prefix="/hello")
with urllib.request.urlopen(f"http://127.0.0.1:{port}/hello", timeout=30) as answer:
    assert answer.read() == b"hello 42"
Path(__file__).with_suffix(".ready").touch()
time.sleep(1000)
