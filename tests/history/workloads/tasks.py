"""Tasks that end in every way a task can end; the driver ends well."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import ray
from ray._private.profiling import profile
from ray.exceptions import RayError


@ray.remote
def leaf(n: int) -> int:
    sys.stdout.write(f"leaf {n}\n")
    return n


@ray.remote
def tree(n: int) -> int:
    return sum(ray.get([leaf.remote(i) for i in range(n)]))


@ray.remote
def waiting() -> int:
    ready, _ = ray.wait([leaf.remote(i) for i in range(2)], num_returns=2)
    return len(ready)


@ray.remote(max_retries=3, retry_exceptions=True)
def flaky(file: str) -> int:
    with Path(file).open("a+") as tries:
        tries.write("x")
        tries.flush()
        if tries.tell() < 3:
            raise ValueError(f"try {tries.tell()}")
        return tries.tell()


@ray.remote(max_retries=1)
def killed_once(file: str) -> int:
    if not Path(file).exists():
        Path(file).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


@ray.remote(max_retries=1)
def exits() -> None:
    sys.stderr.write("about to leave\n")
    sys.stderr.flush()
    os._exit(3)


@ray.remote(max_retries=3, retry_exceptions=[KeyError])
def raises() -> None:
    raise ValueError('on purpose: "quotes", ünïcode\nand a second line')


@ray.remote
def calls_raises() -> None:
    ray.get(raises.remote())


@ray.remote
def sleeps(seconds: float) -> None:
    for _ in range(int(seconds * 10)):  # Ray's interrupt does not wake a sleeper
        time.sleep(0.1)


@ray.remote(num_returns="streaming")
def counts(n: int, broken: bool) -> Iterator[int]:
    for i in range(n):  # noqa: UP028 (Ray wants a generator that takes `send`)
        yield i
    if broken:
        raise RuntimeError("a broken stream")


@ray.remote(num_returns=2)
def pair() -> tuple[int, int]:
    return 1, 2


@ray.remote
def profiled() -> None:
    with profile("my own span", extra_data={"key": "value"}):
        time.sleep(0.01)


@ray.remote(runtime_env={"env_vars": {"COLOR": "blue"}, "config": {"setup_timeout_seconds": 60}})
def color() -> str:
    return os.environ["COLOR"]


def swallow(reference: object) -> None:
    with suppress(RayError, ValueError):
        ray.get(reference)


ray.init()
scratch = Path(__file__).parent
colored = color.remote()
assert ray.get(tree.remote(4)) == 6
assert ray.get(waiting.remote()) == 2
for reference in (raises.remote(), calls_raises.remote()):
    swallow(reference)
assert [ray.get(item) for item in counts.remote(3, False)] == [0, 1, 2]
for item in counts.remote(2, True):
    swallow(item)
assert ray.get(list(pair.remote())) == [1, 2]
ray.get(profiled.remote())
ray.get(leaf.options(name="a näme of its own", num_cpus=0.5, memory=1000).remote(7))
ray.get(leaf.options(label_selector={"zone": "east"}).remote(8))
if tuple(map(int, ray.__version__.split(".")[:2])) >= (2, 51):  # the first with this option
    elsewhere = [{"label_selector": {"zone": "east"}}]
    ray.get(leaf.options(label_selector={"zone": "nowhere"}, fallback_strategy=elsewhere).remote(9))
ray.get(leaf.remote(leaf.remote(10)))
ray.get(leaf.remote(ray.put(11)))
swallow(leaf.options(runtime_env={"working_dir": "gcs://_ray_pkg_0123456789abcdef.zip"}).remote(12))

running, forced = sleeps.remote(100), sleeps.remote(100)
blocked, infeasible = leaf.remote(forced), leaf.options(resources={"nowhere": 1}).remote(13)
time.sleep(2)
for reference, force in ((running, False), (blocked, False), (infeasible, False), (forced, True)):
    ray.cancel(reference, force=force)
    swallow(reference)
assert ray.get(colored) == "blue"
# Last: a worker that is killed takes along what it has not reported, and so do those that own tasks.
dying = [exits.remote(), killed_once.remote(f"{scratch}/killed"), flaky.remote(f"{scratch}/flaky")]
for reference in dying:
    swallow(reference)
time.sleep(1.5)  # all have reported
