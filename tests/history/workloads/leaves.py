"""A driver that ends, or is ended, with tasks and actors under way. Argument-free: its file name says how it ends."""

import sys
import time
from pathlib import Path

import ray


@ray.remote(num_cpus=0.01)
def sleeps(seconds: float, begun: str) -> None:
    Path(begun).touch()
    time.sleep(seconds)


@ray.remote(num_cpus=0.01)
def parent(begun: str) -> None:
    ray.get(sleeps.remote(1000, begun))


@ray.remote(num_cpus=0.01)
class Holder:
    def hold(self, seconds: float, begun: str) -> None:
        Path(begun).touch()
        time.sleep(seconds)


ray.init()
holder = Holder.remote()
begun = [Path(__file__).with_suffix(suffix) for suffix in (".parent", ".holder")]
kept = [
    parent.remote(str(begun[0])),
    holder.hold.remote(1000, str(begun[1])),
    sleeps.options(resources={"nowhere": 1}).remote(0, str(begun[0])),
]
while not all(file.exists() for file in begun):
    time.sleep(0.1)
time.sleep(3)  # all have reported; who is killed takes along what it has not
Path(__file__).with_suffix(".ready").touch()
if Path(__file__).stem == "fails":
    sys.exit(1)
time.sleep(1000)
