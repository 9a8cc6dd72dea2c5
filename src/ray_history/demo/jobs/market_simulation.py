"""Long work that is under way when the cluster is taken down: what is lost then is what people come to look for."""

import random
import time

import ray


@ray.remote(num_cpus=0.2)
class Market:
    """State that everybody shares."""

    def __init__(self) -> None:
        self.price = 100.0

    def trade(self, change: float) -> float:
        self.price *= 1 + change
        return self.price


@ray.remote(num_cpus=0.5)
def trader(number: int, market: "ray.actor.ActorHandle[Market]") -> None:
    luck = random.Random(number)
    for day in range(100_000):
        price = ray.get(market.trade.remote(luck.gauss(0, 0.01)))
        print(f"trader {number}, day {day}: {price:.2f}")
        time.sleep(2)


ray.init()
market = Market.options(name="market").remote()
traders = [trader.remote(number, market) for number in range(4)]
ray.wait([market.trade.remote(0)])
ray.wait(traders, timeout=5)
print("the market is open, everybody trades")
ray.get(traders)
