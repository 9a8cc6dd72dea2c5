"""Actors that live and end in every way an actor can; a detached one stays behind the driver."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import ray
from ray.exceptions import RayError
from ray.util.state import get_actor


@ray.remote(num_cpus=0.01)
class Counter:
    """A plain actor that prints and shows itself by a name of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.n = 0

    def __repr__(self) -> str:
        return f"Counter({self.name})"

    def add(self) -> int:
        self.n += 1
        sys.stdout.write(f"{self.n}\n")
        return self.n

    def stream(self, n: int) -> Iterator[int]:
        for i in range(n):  # noqa: UP028 (Ray wants a generator that takes `send`)
            yield i

    def fail(self) -> None:
        raise KeyError("on purpose")

    def leave(self) -> None:
        ray.actor.exit_actor()


@ray.remote(num_cpus=0.01)
class Async:
    async def nap(self, seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds


@ray.remote(num_cpus=0.01, max_concurrency=3, concurrency_groups={"io": 2})
class Threaded:
    def __init__(self) -> None:
        self.barrier = threading.Barrier(3)

    def meet(self) -> int:
        return self.barrier.wait(30)

    @ray.method(concurrency_group="io")
    def read(self) -> int:
        return 1


@ray.remote(num_cpus=0.01, max_restarts=1)
class Mortal:
    def die(self) -> None:
        os._exit(1)

    def pid(self) -> int:
        return os.getpid()


@ray.remote(num_cpus=0.01)
class Broken:
    def __init__(self) -> None:
        raise ValueError("no such actor")

    def never(self) -> None:
        pass


@ray.remote(num_cpus=0.01)
class Owner:
    """Owns an actor of its own."""

    def __init__(self) -> None:
        self.child = Counter.remote("child")

    def add(self) -> int:
        n: int = ray.get(self.child.add.remote())
        return n


def swallow(reference: object) -> None:
    with suppress(RayError, KeyError):
        ray.get(reference)


ray.init(namespace="space")
mortal = Mortal.remote()
detached = Mortal.options(name="detached", lifetime="detached", namespace="elsewhere", max_restarts=-1).remote()
broken, unset = Broken.remote(), Counter.options(runtime_env={"working_dir": "gcs://_ray_pkg_fedcba98.zip"}).remote("x")
calls = [broken.never.remote(), unset.add.remote()]
counter = Counter.options(name="counter", runtime_env={"env_vars": {"SHAPE": "round"}}).remote("one")
assert ray.get([counter.add.remote() for _ in range(3)]) == [1, 2, 3]
assert [ray.get(item) for item in counter.stream.options(num_returns="streaming").remote(2)] == [0, 1]
swallow(counter.fail.remote())
ray.get(counter.add.options(name="a call of its own").remote())
swallow(counter.leave.remote())

sleeper = Async.remote()
nap, naps = sleeper.nap.remote(100), [sleeper.nap.remote(0.1) for _ in range(3)]
ray.get(naps)
ray.cancel(nap)
swallow(nap)
threaded = Threaded.options(label_selector={"zone": "east"}).remote()
ray.get([threaded.meet.remote() for _ in range(3)])
ray.get(threaded.read.remote())
owner = Owner.remote()
ray.get(owner.add.remote())
swallow(mortal.die.remote())
for _ in range(100):
    with suppress(RayError):
        ray.get(mortal.pid.remote())
        break
    time.sleep(0.2)
swallow(mortal.die.remote())
swallow(mortal.pid.remote())
ray.get(detached.pid.remote())
ray.kill(detached, no_restart=False)
lonely = Counter.remote("lonely")
ray.get(lonely.add.remote())
pending = sleeper.nap.remote(100)
time.sleep(0.5)
ray.kill(sleeper)
for call in (*calls, pending):
    swallow(call)
lonely_id = lonely._actor_id.hex()
del lonely, threaded
for _ in range(100):
    state = get_actor(lonely_id)
    if state is not None and state.state == "DEAD":
        break
    time.sleep(0.2)
time.sleep(1.5)  # all have reported
