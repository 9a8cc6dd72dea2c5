"""A Ray Data pipeline: blocks are read, mapped by tasks and by actors, shuffled and counted."""

import time
from typing import Any

import ray


class Adds:
    """A stage that runs in actors."""

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"] + 1}


ray.init()
ray.data.DataContext.get_current().enable_progress_bars = False
mapped = ray.data.range(300, override_num_blocks=3).map_batches(lambda batch: {"id": batch["id"] * 2})
added = mapped.map_batches(Adds, concurrency=1, num_cpus=0.1).random_shuffle().materialize()
assert added.count() == 300
assert added.sum("id") == 300 * 299 + 300
time.sleep(1.5)  # all have reported
