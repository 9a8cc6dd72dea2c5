"""A driver that ends, or is ended, with tasks and actors under way. Argument-free: its file name says how it ends."""

import sys
import time
from pathlib import Path

import ray


@ray.remote(num_cpus=0.01)
def sleeps(seconds: float) -> None:
    time.sleep(seconds)


@ray.remote(num_cpus=0.01)
def parent() -> None:
    ray.get(sleeps.remote(1000))


@ray.remote(num_cpus=0.01)
class Holder:
    def hold(self, seconds: float) -> None:
        time.sleep(seconds)


ray.init()
holder = Holder.remote()
kept = [parent.remote(), holder.hold.remote(1000), sleeps.options(resources={"nowhere": 1}).remote(0)]
time.sleep(3)
Path(__file__).with_suffix(".ready").touch()
if Path(__file__).stem == "fails":
    sys.exit(1)
time.sleep(1000)
