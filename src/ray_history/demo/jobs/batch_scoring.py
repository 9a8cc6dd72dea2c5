"""A Ray Data pipeline: read, map in tasks, score in an actor, aggregate."""

import time
from typing import Any

import ray
from ray.data.aggregate import Count, Mean


class Scorer:
    """A model that is loaded once per actor."""

    def __init__(self) -> None:
        time.sleep(0.3)
        print("model loaded")

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"score": (batch["value"] % 97) / 97}


ray.init()
context = ray.data.DataContext.get_current()
context.enable_progress_bars = False
context.scheduling_strategy = "DEFAULT"  # on nodes that have workers, instead of on all nodes in turn
values = ray.data.range(2000, override_num_blocks=6, concurrency=1)
values = values.map_batches(lambda batch: {"value": batch["id"] * 31 + 7}, concurrency=1)
scored = values.map_batches(Scorer, concurrency=1, num_cpus=0.2).aggregate(Count(), Mean("score"))
print(f"scored {scored['count()']} rows, mean {scored['mean(score)']:.3f}")
time.sleep(1.5)  # until all workers have reported
