"""A driver that nobody submitted; its environment decides whether it exports its events."""

import time

import ray


@ray.remote
def leaf(n: int) -> int:
    return n


@ray.remote
def tree(n: int) -> int:
    return sum(ray.get([leaf.remote(i) for i in range(n)]))


@ray.remote(num_cpus=0.01)
class Counter:
    def __init__(self) -> None:
        self.n = 0

    def add(self) -> int:
        self.n += 1
        return self.n


ray.init(address="auto")
assert ray.get(tree.remote(3)) == 3
counter = Counter.remote()
assert ray.get([counter.add.remote() for _ in range(2)]) == [1, 2]
time.sleep(1.5)  # all have reported
