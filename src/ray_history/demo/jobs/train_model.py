"""Actors in a placement group, one of which crashes and is restarted; then a task fails, and the job with it."""

import math
import os
import time

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

WORKERS = 3
STEPS = 6


@ray.remote(num_cpus=0.1)
class ParameterServer:
    """Holds the weights."""

    def __init__(self) -> None:
        self.weight = 1.0

    def pull(self) -> float:
        return self.weight

    def push(self, gradients: list[float]) -> float:
        self.weight -= sum(gradients) / len(gradients)
        return self.weight


@ray.remote(num_cpus=0.1, max_restarts=2, max_task_retries=2)
class Trainer:
    """Computes gradients; the actor of rank 1 dies once, as if it had been killed for its memory."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        restarted = ray.get_runtime_context().was_current_actor_reconstructed
        print(f"trainer {rank} {'is back' if restarted else 'starts'} in process {os.getpid()}")

    def step(self, number: int, weight: float) -> float:
        restarted = ray.get_runtime_context().was_current_actor_reconstructed
        if self.rank == 1 and number == 2 and not restarted:
            os._exit(137)
        time.sleep(0.1)
        return math.sin(weight + number) / 10


@ray.remote(num_cpus=0.1)
def evaluate(step: int, weight: float) -> float:
    loss = math.inf if step == STEPS - 1 else abs(weight)
    if not math.isfinite(loss):
        raise FloatingPointError(f"loss is {loss} at step {step}: the learning rate is too high")
    print(f"step {step}: loss {loss:.4f}")
    return loss


@ray.remote(num_cpus=0.1)
def report(*losses: float) -> str:
    return f"best loss {min(losses)}"


ray.init()
group = placement_group([{"CPU": 0.5}] * WORKERS, strategy="SPREAD", name="trainers")
group.wait()
server = ParameterServer.options(name="parameter-server").remote()
trainers = [
    Trainer.options(name=f"trainer-{rank}", scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank)).remote(
        rank
    )
    for rank in range(WORKERS)
]
losses = []
for step in range(STEPS):
    weight = ray.get(server.pull.remote())
    gradients = ray.get([trainer.step.remote(step, weight) for trainer in trainers])
    losses.append(evaluate.remote(step, ray.get(server.push.remote(gradients))))
    ray.wait(losses[-1:])
summary = report.remote(*losses)
time.sleep(2)  # until all workers have reported
print(ray.get(summary))
