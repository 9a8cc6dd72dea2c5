"""A driver that ends, or is ended, with tasks and actors under way."""

import os
import sys
import time

import ray
from ray.util.placement_group import placement_group


@ray.remote(num_cpus=0.01)
def sleeps(seconds):
    time.sleep(seconds)


@ray.remote(num_cpus=0.01)
def parent():
    ray.get(sleeps.remote(1000))


@ray.remote(num_cpus=0.01)
class Holder:
    def hold(self, seconds):
        time.sleep(seconds)


ray.init()
group = placement_group([{"CPU": 0.01}], name="of the driver")
ray.get(group.ready())
holder = Holder.options(name=os.environ["NAME"]).remote()
ray.get(holder.hold.remote(0))
kept = [parent.remote(), holder.hold.remote(1000), holder.hold.remote(1), sleeps.options(resources={"no": 1}).remote(0)]
time.sleep(4)  # all have reported; who is killed takes along what it has not
print("ready", flush=True)
if os.environ["NAME"] == "fails":
    sys.exit(1)
time.sleep(1000)
