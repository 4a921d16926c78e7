"""The loop on a real broker at full size: 100 kills, 20 pauses of 5 to 90 s, 20 takeovers, 10 outages.

TALLYSTREAM_FAULTS_SHARE, a number from 0 to 1, reduces the number of each. tests/integration/test_stream_loop.py says
what is judged.
"""

from __future__ import annotations

import os
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

import pytest

from support.stream_system import System
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.timeout(7200)]

SHARE = float(os.environ.get("TALLYSTREAM_FAULTS_SHARE", "1"))


def disasters(system: System) -> list[Callable[[], None]]:
    """Return the disasters of a run in random order."""
    chance, shards = system.chance, system.shards
    kinds: dict[Callable[[int], Callable[[], None]], int] = {
        lambda _: system.kill: 60,
        lambda number: partial(system.kill_task, number % (len(shards) + (len(shards) > 1))): 20,
        lambda _: system.lose_checkpoint: 10,
        lambda _: system.truncate_checkpoint: 10,
        lambda number: partial(system.freeze, (5.0, 90.0, 15.0, 45.0)[number % 4]): 20,
        lambda number: system.take_over_frozen if number % 2 else system.take_over: 20,
        lambda number: partial(system.kill_broker, (1.0, 20.0, 3.0)[number % 3]): 10,
    }
    found = [make(number) for make, size in kinds.items() for number in range(max(1, round(size * SHARE / 2)))]
    chance.shuffle(found)
    return found


@pytest.mark.parametrize("shards", [1, 2])
def test_disasters_in_random_order(tmp_path: Path, shards: int) -> None:
    """Whatever happens, the table goes on by itself and exactly. Half of the disasters are for two shards."""
    folder = tmp_path / "system"
    folder.mkdir()
    with KafkaBroker(tmp_path / "broker") as broker:
        system = System(broker, "stream-", folder, shards=shards, seed=shards, epoch_s=2.0)
        with system.publishing():
            for disaster in disasters(system):
                system.pause(system.chance.uniform(0, 3))
                disaster()
    for what, seconds in sorted(system.recovery_s.items()):
        figures = f"{len(seconds)} times, median {median(seconds):.2f} s, longest {max(seconds):.2f} s"
        print(f"shards: {shards}, {what}: {figures}")  # noqa: T201 (the numbers belong in the test's output)
