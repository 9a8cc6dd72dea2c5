"""Actors that live and end in every way an actor can, and placement groups; a detached actor stays."""

import asyncio
import os
import time
from contextlib import suppress

import ray
from ray.exceptions import RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=0.01)
class Counter:
    def __init__(self, name):
        self.name = name
        self.n = 0

    def __repr__(self):
        return f"Counter({self.name})"

    def add(self):
        self.n += 1
        print("counted", self.n)
        return self.n

    def stream(self, n):
        for i in range(n):  # noqa: UP028 (Ray calls the generator's `send`)
            yield i

    def fail(self):
        raise KeyError("on purpose")

    def leave(self):
        ray.actor.exit_actor()


@ray.remote(num_cpus=0.01)
class Async:
    async def nap(self, seconds):
        await asyncio.sleep(seconds)
        return seconds


@ray.remote(num_cpus=0.01, max_concurrency=3, concurrency_groups={"io": 2})
class Threaded:
    def work(self):
        time.sleep(0.05)

    @ray.method(concurrency_group="io")
    def read(self):
        return 1


@ray.remote(num_cpus=0.01, max_restarts=1)
class Mortal:
    def die(self):
        os._exit(1)

    def pid(self):
        return os.getpid()


@ray.remote(num_cpus=0.01)
class Broken:
    def __init__(self):
        raise ValueError("no such actor")

    def never(self):
        pass


@ray.remote(num_cpus=0.01)
class Owner:
    def __init__(self):
        self.child = Counter.remote("child")

    def add(self):
        return ray.get(self.child.add.remote())


def swallow(reference):
    with suppress(RayError, KeyError):
        ray.get(reference, timeout=60)


ray.init(namespace="space")
mortal = Mortal.remote()
detached = Counter.options(name="detached", lifetime="detached", namespace="elsewhere", max_restarts=-1).remote("d")
broken = Broken.remote()
calls = [broken.never.remote(), detached.add.remote()]
counter = Counter.options(name="counter", runtime_env={"env_vars": {"SHAPE": "round"}}).remote("one")
ray.get([counter.add.remote() for _ in range(3)])
for item in counter.stream.options(num_returns="streaming").remote(2):
    ray.get(item)
swallow(counter.fail.remote())
ray.get(counter.add.options(name="a call of its own").remote())
swallow(counter.leave.remote())

group = placement_group([{"CPU": 0.1}, {"CPU": 0.1}], name="made", strategy="SPREAD")
removed = placement_group([{"CPU": 0.1}], name="removed")
kept = placement_group([{"CPU": 0.1}], name="kept", lifetime="detached", strategy="STRICT_PACK")
infeasible = placement_group([{"CPU": 1000}], name="infeasible")
ray.get([group.ready(), removed.ready(), kept.ready()])
inside = Counter.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote("inside")
ray.get(inside.add.remote())
remove_placement_group(removed)

sleeper, threaded = Async.remote(), Threaded.remote()
nap = sleeper.nap.remote(100)
ray.get([sleeper.nap.remote(0.1) for _ in range(3)] + [threaded.work.remote() for _ in range(3)])
ray.cancel(nap)
swallow(nap)
ray.get(threaded.read.remote())
owner = Owner.remote()
ray.get(owner.add.remote())
there = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
ray.get(Counter.options(scheduling_strategy=there, get_if_exists=True, name="found").remote("near").add.remote())
swallow(mortal.die.remote())
for _ in range(100):
    with suppress(RayError):
        ray.get(mortal.pid.remote())
        break
    time.sleep(0.2)
swallow(mortal.die.remote())
swallow(mortal.pid.remote())
pending = sleeper.nap.remote(100)
time.sleep(0.5)
ray.kill(sleeper)
for call in (*calls, pending):
    swallow(call)
del threaded, inside
time.sleep(2)  # all have reported
