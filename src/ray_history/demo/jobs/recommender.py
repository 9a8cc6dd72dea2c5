"""A Ray Serve application with two deployments that runs until the cluster dies."""

import os
import time
import urllib.request

from ray import serve
from ray.serve.handle import DeploymentHandle


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.1})
class Ranker:
    def __call__(self, user: int) -> list[int]:
        return [user * 7 % 100, user * 11 % 100, user * 13 % 100]


@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Frontend:
    def __init__(self, ranker: DeploymentHandle) -> None:
        self.ranker = ranker

    async def __call__(self, _: object) -> dict[str, list[int]]:
        return {"items": await self.ranker.remote(42)}


port = int(os.environ["SERVE_PORT"])
serve.start(http_options={"host": "127.0.0.1", "port": port, "location": "HeadOnly"})
serve.run(Frontend.bind(Ranker.bind()), name="recommender", route_prefix="/recommend")
for _ in range(5):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/recommend", timeout=30) as answer:
        print(answer.read().decode())
time.sleep(1000)
