"""Nested tasks, some of which succeed on retry; the job succeeds."""

import random
import time
from pathlib import Path

import ray

SHARDS = 12
REGIONS = 2


@ray.remote(num_cpus=2)
def extract(shard: int) -> list[int]:
    print(f"reading shard {shard} of {SHARDS}")
    time.sleep(0.2)
    return random.Random(shard).sample(range(1000), 50)


@ray.remote(num_cpus=2)
def clean(rows: list[int]) -> list[int]:
    time.sleep(0.1)
    return [row for row in rows if row % 7]


@ray.remote(num_cpus=2, max_retries=3, retry_exceptions=[ConnectionError])
def load(shard: int, rows: list[int], scratch: str) -> int:
    """Writes to a warehouse that refuses the first attempt of every third shard."""
    tried = Path(scratch) / f"shard-{shard}.tried"
    if shard % 3 == 0 and not tried.exists():
        tried.touch()
        raise ConnectionError(f"warehouse refused shard {shard}: 503 slow down")
    print(f"shard {shard}: {len(rows)} rows loaded")
    return len(rows)


@ray.remote(num_cpus=0)
def pipeline(region: int, scratch: str) -> int:
    shards = range(region, SHARDS, REGIONS)
    loaded = ray.get([load.remote(shard, clean.remote(extract.remote(shard)), scratch) for shard in shards])
    print(f"region {region}: {sum(loaded)} rows")
    return sum(loaded)


ray.init()
scratch = str(Path(__file__).parent)
total = sum(ray.get([pipeline.remote(region, scratch) for region in range(REGIONS)]))
print(f"nightly load done: {total} rows from {SHARDS} shards")
time.sleep(1.5)  # until all workers have reported
