"""How much later stops are shown, as statuses change once a window: PYTHONPATH=tests python -m benchmarks.lag_changes.

The consumers of random groups are well, slow, fast, or stand still, for times that are exponentially distributed. Each
group is judged with the collector's code every ten seconds. A group has stopped while records wait in a partition that
has not committed for longer than the rules allow; that is shown while its status is ERR.
"""

from __future__ import annotations

import argparse
import random
from itertools import pairwise
from statistics import median

from support.lag import Rounds, group, round_of
from tallystream_dashboards.lag.status import Rules, Status

T0 = 1_700_000_000_000
EVERY_S, RATE = 10, 50
SPEEDS = {"well": 1.3, "slow": 0.7, "still": 0.0, "fast": 3.0}
RULES = Rules()


class Consumer:
    """Reads one partition, to which `RATE` records are appended a second, at a speed that changes at random."""

    def __init__(self, random_: random.Random, mean_s: float) -> None:
        self._random, self._mean_s = random_, mean_s
        self._speed, self._until = SPEEDS["well"], 0.0
        self._moved_s = 0
        self.committed = self.end = 0

    def step(self, second: int) -> bool:
        """Produce and consume for one round; return whether the consumer has stopped."""
        if second >= self._until:
            self._speed = SPEEDS[self._random.choice(list(SPEEDS))]
            self._until = second + self._random.expovariate(1 / self._mean_s)
        self.end += RATE * EVERY_S
        before, self.committed = self.committed, min(self.end, self.committed + round(self._speed * RATE * EVERY_S))
        if before != self.committed:
            self._moved_s = second
        return second - self._moved_s > RULES.max_idle_s


def delays(random_: random.Random, mean_s: float, hours: float) -> tuple[list[int | None], int]:
    """Return by how many seconds later each stop of one group is shown, None for never, and the changes of status.

    A stop that is shown after its end counts as shown if it is within a window. Those of the last two windows are left
    out.
    """
    consumers, rounds = [Consumer(random_, mean_s) for _ in range(random_.choice([1, 3]))], Rounds(RULES)
    stopped, shown = list[bool](), list[Status]()
    for second in range(0, round(hours * 3600), EVERY_S):
        have_stopped = [one.step(second) for one in consumers]
        stopped.append(any(have_stopped))
        rounds.points(round_of(group("g", *((one.committed, one.end) for one in consumers))), T0 + second * 1000)
        shown.append(rounds.states[0].evaluation.status)
    found, window = list[int | None](), round(RULES.window_s) // EVERY_S
    for at in range(1, len(shown) - 2 * window):
        if stopped[at] and not stopped[at - 1]:
            end = next((later for later in range(at, len(shown)) if not stopped[later]), len(shown))
            in_time = range(at, min(len(shown), end + window))
            found.append(next(((later - at) * EVERY_S for later in in_time if shown[later] is Status.ERR), None))
    return found, sum(before is not now for before, now in pairwise(shown))


def main(groups: int, hours: float) -> None:
    """Print the delays for three mean times between changes of a consumer."""
    print("mean s  stops  later   %  median s  worst s  never  changes")
    for mean_s in (60, 300, 1200):
        random_ = random.Random(1)
        of_groups = [delays(random_, mean_s, hours) for _ in range(groups)]
        found = [one for each, _ in of_groups for one in each]
        later = [one for one in found if one]
        share = 100 * len(later) / max(1, len(found))
        print(
            f"{mean_s:6}  {len(found):5}  {len(later):5}  {share:2.0f}  {median(later or [0]):8.0f}"
            f"  {max(later, default=0):7}  {found.count(None):5}  {sum(changes for _, changes in of_groups):7}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lag_changes", description=__doc__)
    parser.add_argument("--groups", type=int, default=40)
    parser.add_argument("--hours", type=float, default=2)
    options = parser.parse_args()
    main(options.groups, options.hours)
