"""What it costs if a status of lag changes at most once a window: `PYTHONPATH=tests python -m benchmarks.lag_changes`.

The consumers of random groups are well, slow, fast, or stand still, for times that are exponentially distributed. Each
group is judged with the collector's code every ten seconds. Beside what is shown, a limited status changes only when a
window has passed since its last change.
"""

from __future__ import annotations

import argparse
import random
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from support.lag import Rounds, group, round_of
from tallystream_dashboards.lag.status import Rules, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

T0 = 1_700_000_000_000
EVERY_S, RATE = 10, 50
SPEEDS = {"well": 1.3, "slow": 0.7, "still": 0.0, "fast": 3.0}
RULES = Rules()


class Consumer:
    """Reads one partition, to which `RATE` records are appended a second, at a speed that changes at random."""

    def __init__(self, random_: random.Random, mean_s: float) -> None:
        self._random, self._mean_s = random_, mean_s
        self._speed, self._until = SPEEDS["well"], 0.0
        self.committed = self.end = 0

    def step(self, second: int) -> None:
        """Produce and consume for one round."""
        if second >= self._until:
            self._speed = SPEEDS[self._random.choice(list(SPEEDS))]
            self._until = second + self._random.expovariate(1 / self._mean_s)
        self.end += RATE * EVERY_S
        self.committed = min(self.end, self.committed + round(self._speed * RATE * EVERY_S))


class Cost(NamedTuple):
    """The stops of groups, by how much later each is shown, and the changes of status, shown and limited."""

    delays: list[int]
    changes: int
    limited_changes: int


def statuses(random_: random.Random, mean_s: float, hours: float) -> Iterator[tuple[int, Status]]:
    """Yield a group's status in each round."""
    consumers, rounds = [Consumer(random_, mean_s) for _ in range(random_.choice([1, 3]))], Rounds(RULES)
    for second in range(0, round(hours * 3600), EVERY_S):
        for one in consumers:
            one.step(second)
        rounds.points(round_of(group("g", *((one.committed, one.end) for one in consumers))), T0 + second * 1000)
        yield second, rounds.states[0].evaluation.status


def limited(shown: list[tuple[int, Status]]) -> list[tuple[int, Status]]:
    """Return the statuses, each change a window after the one before or later."""
    found, last_s = [shown[0]], -RULES.window_s
    for second, status in shown[1:]:
        changes = status is not found[-1][1] and second - last_s >= RULES.window_s
        last_s = second if changes else last_s
        found.append((second, status if changes else found[-1][1]))
    return found


def cost(shown: list[tuple[int, Status]]) -> Cost:
    """Return what the limited statuses of one group cost. A stop that they never show counts as shown when it ends."""
    later = limited(shown)
    delays = []
    for at, ((_, before), (begin, now)) in enumerate(pairwise(shown), 1):
        if now is Status.ERR and before is not now:
            missed = next((i for i in range(at, len(shown)) if later[i][1] is now or shown[i][1] is not now), at)
            delays.append(shown[missed][0] - begin)
    return Cost(delays, *(sum(a is not b for (_, a), (_, b) in pairwise(one)) for one in (shown, later)))


def main(groups: int, hours: float) -> None:
    """Print the cost for three mean times between changes of a consumer."""
    print("mean s  stops  later   %  median s  worst s  changes  limited")
    for mean_s in (60, 300, 1200):
        random_ = random.Random(1)
        costs = [cost(list(statuses(random_, mean_s, hours))) for _ in range(groups)]
        delays = [delay for one in costs for delay in one.delays]
        later = [delay for delay in delays if delay]
        changes, fewer = (sum(one[at] for one in costs) for at in (1, 2))
        share = 100 * len(later) / max(1, len(delays))
        print(
            f"{mean_s:6}  {len(delays):5}  {len(later):5}  {share:2.0f}"
            f"  {median(later or [0]):8.0f}  {max(later, default=0):7}  {changes:7}  {fewer:7}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lag_changes", description=__doc__)
    parser.add_argument("--groups", type=int, default=40)
    parser.add_argument("--hours", type=float, default=2)
    options = parser.parse_args()
    main(options.groups, options.hours)
