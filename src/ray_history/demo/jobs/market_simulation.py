"""Tasks that are running when the cluster dies, which users look for afterwards."""

import random
import time

import ray

TRADERS = 2


@ray.remote(num_cpus=0.2)
class Market:
    """Shared state."""

    def __init__(self) -> None:
        self.price = 100.0
        self.seen: set[int] = set()

    def trade(self, trader: int, change: float) -> float:
        self.seen.add(trader)
        self.price *= 1 + change
        return self.price

    def traders(self) -> int:
        return len(self.seen)


@ray.remote(num_cpus=0.5)
def trader(number: int, market: "ray.actor.ActorHandle[Market]") -> None:
    luck = random.Random(number)
    for day in range(100_000):
        price = ray.get(market.trade.remote(number, luck.gauss(0, 0.01)))
        print(f"trader {number}, day {day}: {price:.2f}")
        time.sleep(2)


ray.init()
market = Market.options(name="market").remote()
traders = [trader.remote(number, market) for number in range(TRADERS)]
while ray.get(market.traders.remote()) < TRADERS:
    time.sleep(0.5)
print("the market is open, everybody trades")
ray.get(traders)
