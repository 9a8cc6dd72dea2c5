"""Work that is under way when its cluster dies, some of it on a node that dies before."""

import time
from pathlib import Path

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=0.01)
def sleeps(seconds: float) -> None:
    time.sleep(seconds)


@ray.remote(num_cpus=0.01)
def gets() -> None:
    ray.get(sleeps.options(resources={"nowhere": 1}).remote(0))


@ray.remote(num_cpus=0.01)
def waits() -> None:
    ray.wait([sleeps.options(resources={"nowhere": 2}).remote(0)])


@ray.remote(num_cpus=0.01)
class Holder:
    def hold(self, seconds: float) -> None:
        time.sleep(seconds)


@ray.remote(num_cpus=0.01)
def owns(file: str) -> None:
    """Owns a task and an actor on another node."""
    holder = Holder.options(name="orphan").remote()
    ray.get(holder.hold.remote(0))
    references = [sleeps.options(name="orphaned").remote(1000), holder.hold.remote(1000)]
    Path(file).touch()
    ray.get(references)


ray.init()
group = placement_group([{"CPU": 0.1}, {"CPU": 0.1}], name="made")
removed = placement_group([{"CPU": 0.1}], name="removed", lifetime="detached", strategy="SPREAD")
infeasible = placement_group([{"CPU": 1000}], name="infeasible")
ray.get([group.ready(), removed.ready()])
remove_placement_group(removed)
inside = PlacementGroupSchedulingStrategy(group)

kept: list[object] = [gets.remote(), waits.remote(), sleeps.options(scheduling_strategy=inside).remote(1000)]
nowhere = sleeps.options(resources={"nowhere": 3}).remote(0)
kept += [nowhere, sleeps.options(name="behind").remote(nowhere)]
never, holder = (
    Holder.options(resources={"nowhere": 1}).remote(),
    Holder.options(name="holder", scheduling_strategy=inside).remote(),
)
kept += [never, never.hold.remote(0), holder, holder.hold.remote(1000), holder.hold.remote(1000)]

doomed = {"num_cpus": 0, "resources": {"doomed": 1}}
mortal = Holder.options(name="mortal", **doomed).remote()
restarting = Holder.options(name="restarting", **doomed, max_restarts=2).remote()
labelled = Holder.options(name="labelled", num_cpus=0, label_selector={"size": "s"}, max_restarts=1).remote()
ray.get([actor.hold.remote(0) for actor in (mortal, restarting, labelled)])
kept += [mortal, restarting, labelled, mortal.hold.remote(1000), restarting.hold.remote(1000)]
kept += [sleeps.options(name="unlucky", **doomed, max_retries=0).remote(1000)]
kept += [sleeps.options(name="again", **doomed, max_retries=1).remote(1000)]
owned = Path(__file__).with_suffix(".owned")
kept += [owns.options(**doomed).remote(str(owned))]
while not owned.exists():
    time.sleep(0.1)
time.sleep(6)  # all have reported, on a slow machine, too; who is killed takes along what it has not
Path(__file__).with_suffix(".ready").touch()
time.sleep(1000)
