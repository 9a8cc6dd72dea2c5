"""A seeded stream of tasks and actors of every kind, a few each second, until its cluster dies."""

import os
import random
import time
from contextlib import suppress

import ray
from ray.exceptions import RayError

numbers = random.Random(int(os.environ["SEED"]))


@ray.remote(num_cpus=0.4)
def quick(n):
    print("quick", n)
    return n


@ray.remote(num_cpus=0.4)
def slow(seconds):
    time.sleep(seconds)


@ray.remote(num_cpus=0.4)
def nested(n):
    return sum(ray.get([quick.remote(i) for i in range(n)]))


@ray.remote(num_cpus=0.4, max_retries=2, retry_exceptions=True)
def unlucky(chance):
    if random.random() < chance:
        raise ValueError("bad luck")


@ray.remote(num_cpus=0.4, max_retries=1)
def crashes():
    os._exit(1)


@ray.remote(num_cpus=0.01, max_restarts=2)
class Worker:
    def __init__(self, name):
        self.name = name

    def work(self, seconds):
        time.sleep(seconds)
        print(self.name, "worked")

    def die(self):
        os._exit(1)


def begin_actor(kept):
    worker = Worker.options(num_cpus=numbers.choice([0, 0.01])).remote(f"worker {len(kept)}")
    kept += [worker.work.remote(numbers.choice([0, 0.2, 20])) for _ in range(2)]
    actors.append(worker)


def end_actor(kept):
    if len(actors) > 2:
        worker = actors.pop(0)
        how = numbers.random()
        if how < 0.4:
            ray.kill(worker)
        elif how < 0.7:
            kept.append(worker.die.remote())


def cancel(kept):
    reference = slow.remote(30)
    time.sleep(0.2)
    with suppress(RayError):
        ray.cancel(reference, force=numbers.random() < 0.5)
    kept.append(reference)


STEPS = {
    lambda kept: kept.append(quick.options(name=f"quick {numbers.randrange(5)}").remote(1)): 6,
    lambda kept: kept.append(slow.remote(numbers.choice([1, 3, 20]))): 3,
    lambda kept: kept.append(nested.remote(numbers.randrange(1, 5))): 3,
    lambda kept: kept.append(unlucky.remote(0.5)): 2,
    lambda kept: kept.append(crashes.remote()): 0.3,
    begin_actor: 0.7,
    end_actor: 0.5,
    cancel: 0.4,
}

ray.init()
actors = []
kept = []
print("ready", flush=True)
while True:
    (step,) = numbers.choices(list(STEPS), list(STEPS.values()))
    step(kept)
    del kept[:-40]
    time.sleep(numbers.uniform(0.2, 0.8))
