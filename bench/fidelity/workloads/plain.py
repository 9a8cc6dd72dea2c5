"""A driver that nobody submitted."""

import time

import ray


@ray.remote(num_cpus=0.5)
def leaf(n):
    return n


@ray.remote(num_cpus=0.01)
class Counter:
    def add(self):
        return 1


ray.init(address="auto")
ray.get([leaf.remote(i) for i in range(3)])
counter = Counter.remote()
ray.get([counter.add.remote() for _ in range(2)])
time.sleep(2)  # all have reported
