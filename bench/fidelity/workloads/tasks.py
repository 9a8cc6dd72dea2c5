"""Tasks that end in every way a task can end; the driver ends well."""

import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import ray
from ray.exceptions import RayError

SEED = int(os.environ["SEED"])
SCRATCH = Path(os.environ["SCRATCH"])


@ray.remote(num_cpus=0.5)
def leaf(n):
    print("leaf", n)
    return n


@ray.remote(num_cpus=0.5)
def tree(n, depth):
    below = tree if depth else leaf
    return sum(ray.get([below.remote(*((i, depth - 1) if depth else (i,))) for i in range(n)]))


@ray.remote(num_cpus=0.5)
def waiting():
    return len(ray.wait([leaf.remote(i) for i in range(2)], num_returns=2)[0])


@ray.remote(num_cpus=0.5, max_retries=3, retry_exceptions=True)
def flaky(file):
    with Path(file).open("a+") as tries:
        tries.write("x")
        tries.flush()
        if tries.tell() < 3:
            raise ValueError(f"try {tries.tell()}")
    return 1


@ray.remote(num_cpus=0.5, max_retries=1)
def killed_once(file):
    print("about to be killed, perhaps", flush=True)
    if not Path(file).exists():
        Path(file).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


@ray.remote(num_cpus=0.5, max_retries=0)
def exits():
    print("about to leave", file=sys.stderr, flush=True)
    os._exit(3)


@ray.remote(num_cpus=0.5, max_retries=0)
def quits():
    sys.exit(0)


@ray.remote(num_cpus=0.5)
def raises():
    raise ValueError('on purpose: "quotes", ünïcode\nand a second line')


@ray.remote(num_cpus=0.5)
def calls_raises():
    ray.get(raises.remote())


@ray.remote(num_cpus=0.5)
def sleeps(seconds):
    for _ in range(int(seconds * 10)):  # Ray's interrupt does not wake a sleeper
        time.sleep(0.1)


@ray.remote(num_cpus=0.5, num_returns="streaming")
def counts(n, broken):
    for i in range(n):  # noqa: UP028 (Ray calls the generator's `send`)
        yield i
    if broken:
        raise RuntimeError("a broken stream")


@ray.remote(num_cpus=0.5, num_returns=2)
def pair():
    return 1, 2


@ray.remote(num_cpus=0.5, runtime_env={"env_vars": {"COLOR": "blue"}})
def color():
    return os.environ["COLOR"]


def swallow(reference):
    with suppress(RayError, ValueError):
        ray.get(reference)


ray.init()
colored = color.remote()
ray.get([tree.remote(3, 1), waiting.remote(), *pair.remote()])
for reference in (raises.remote(), calls_raises.remote(), quits.remote()):
    swallow(reference)
for broken in (False, True):
    for item in counts.remote(2, broken):
        swallow(item)
numbers = random.Random(SEED)
for n in numbers.sample(range(1000), 6):
    leaf.options(name=f"leaf of {n}", num_cpus=numbers.choice([0.25, 0.5]), memory=1000 * n).remote(n)
ray.get(leaf.options(resources={"side": 1}).remote(8))
ray.get(leaf.remote(leaf.remote(ray.put(10))))
swallow(leaf.options(runtime_env={"working_dir": "gcs://_ray_pkg_0123456789abcdef.zip"}).remote(12))

running, forced = sleeps.remote(100), sleeps.remote(100)
blocked, infeasible = leaf.remote(forced), leaf.options(resources={"nowhere": 1}).remote(13)
time.sleep(3)
for reference, force in ((running, False), (blocked, False), (infeasible, False), (forced, True)):
    ray.cancel(reference, force=force)
    swallow(reference)
ray.get(colored)
for reference in (exits.remote(), killed_once.remote(f"{SCRATCH}/killed"), flaky.remote(f"{SCRATCH}/flaky")):
    swallow(reference)
time.sleep(2)  # all have reported
