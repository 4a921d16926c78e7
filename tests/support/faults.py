"""The scenarios of the fault suite. Each causes a real fault, at the size that its caller chooses, and compares sums.

Short ones are in tests/integration/test_aggregate_faults.py, long ones in tests/faults/.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from support.aggregator import Aggregator, Victim
from support.exactness import assert_as_acknowledged, assert_exact, assert_published_once
from support.fleet import Fleet
from support.kafka import Servers, end_offsets, following
from support.processes import send, tree
from support.replayed import TopicRecord
from tallystream_aggregator.kafka.topics import Topics
from tallystream_cli.servers.broker import KafkaBroker

PATIENCE = float(os.environ.get("TALLYSTREAM_FAULTS_PATIENCE", "5"))
"""`make test` has limits five times as long as `make faults`, so that a busy machine fails no test."""

RECOVERY_S, OUTAGE_S, STOP_S = 60.0 * PATIENCE, 120.0 * PATIENCE, 60.0 * PATIENCE
"""Maximum seconds to wait for a killed aggregator, for a restarted broker, and for a stop with an error."""


Fault = tuple[str, float]
"""The kind of a fault, and the seconds of an outage or of a pause."""


@dataclass
class Load:
    """An aggregator, the fleet that publishes, and the committed records that a reader has seen, and when."""

    aggregator: Aggregator
    topics: Topics
    fleet: Fleet
    seen: Mapping[str, Sequence[TopicRecord]]
    seen_at: Mapping[str, Sequence[float]]
    recovery_s: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def wait_recovered(self, kind: str, limit: float) -> None:
        """Wait until all that is published now is summed, and note how long it takes after this kind of fault."""
        due = end_offsets(self.aggregator.servers, self.topics.metrics)
        waited = self.aggregator.wait_committed(self.topics.metrics, due, limit, f"{kind}: steps are committed again")
        self.recovery_s[kind].append(waited)


@contextmanager
def under_load(
    broker: Servers, topics: Topics, folder: Path, seed: int, *, shards: int = 1, spark: bool = False
) -> Iterator[Load]:
    """Run an aggregator until the block ends. Then sums are exact, and what is published is there once.

    A reader of committed records follows all outputs. Prints how long after each kind of fault the newest records are
    summed.
    """
    servers = broker.bootstrap_servers
    # A sum of several shards does not tell which tombstones it includes.
    fleet = Fleet(servers, topics.metrics, seed, tombstones=shards == 1)
    fleet.publish(300)
    options = ("--latency", "low", "--shards", str(shards))
    with (
        following(servers, (topics.agg, topics.table, topics.dead, topics.events)) as (seen, seen_at),
        Aggregator(servers, topics.prefix, folder, *options, spark=spark) as aggregator,
    ):
        load = Load(aggregator.start().wait_ready(), topics, fleet, seen, seen_at)
        yield load
        assert_exact(broker, topics)
        assert_as_acknowledged(broker, topics, [fleet])
        assert aggregator.stop() == 0, aggregator.output()
    assert_published_once(broker, topics, seen)
    for kind, passed_s in load.recovery_s.items():
        print(f"{kind}: {len(passed_s)} times, recovered in {min(passed_s):.1f} to {max(passed_s):.1f} s")  # noqa: T201
    print(f"the aggregator ended by itself and was started again: {aggregator.restarts} times")  # noqa: T201


def random_kills(
    broker: KafkaBroker,
    topics: Topics,
    folder: Path,
    faults: Sequence[Fault],
    seed: int,
    *,
    shards: int = 1,
    spark: bool = True,
) -> None:
    """Cause the faults under load at random times, in a random order. The first kills are one of each kind.

    `driver` is a kill of the aggregator, after which a checkpoint can be `lost`, or a file of it `damaged`. `worker` is
    a kill of a worker, `broker` an outage, `pause` one of all processes, `takeover` one by a standby of an aggregator
    that is stopped or killed.
    """
    chance = random.Random(seed)
    kinds: tuple[Victim, ...] = get_args(Victim) if spark else ("tree",)
    takeovers = itertools.cycle([signal.SIGSTOP, signal.SIGKILL])
    victims = itertools.chain(kinds, (chance.choice(kinds) for _ in itertools.count()))
    with under_load(broker, topics, folder, seed, shards=shards, spark=spark) as load, load.fleet.publishing():
        aggregator = load.aggregator
        for number, (kind, seconds) in enumerate(chance.sample(faults, len(faults))):
            pause(chance.uniform(0, 2))
            if kind == "broker":
                broker.kill()
                pause(seconds)
                broker.start()
            elif kind == "pause":
                send(tree(aggregator.process.pid), signal.SIGSTOP)
                pause(seconds)
                send(tree(aggregator.process.pid), signal.SIGCONT)
            elif kind == "takeover":
                aggregator.take_over(next(takeovers))
            elif kind == "worker":
                assert aggregator.kill_worker()
            else:
                _kill(aggregator, kind, next(victims), chance, again=number % 5 == 4)
                aggregator.start()
            load.wait_recovered(kind, OUTAGE_S if kind == "broker" else RECOVERY_S)


def _kill(aggregator: Aggregator, kind: str, victim: Victim, chance: random.Random, *, again: bool) -> None:
    aggregator.kill(victim)
    if kind == "lost":
        shutil.rmtree(aggregator.checkpoint)
    elif kind == "damaged":
        damage(chance.choice(newest_files(aggregator.checkpoint)))
    elif again:
        aggregator.start()
        pause(chance.uniform(0, 8))
        aggregator.kill("tree")


def newest_files(checkpoint: Path) -> list[Path]:
    """Return the files of Spark's checkpoint that the last batch has written, without hidden ones."""
    files = [path for path in checkpoint.rglob("*") if path.is_file() and path.stat().st_size]
    visible = [path for path in files if not path.name.startswith(".") and path.parent != checkpoint]
    return sorted(visible, key=lambda path: path.stat().st_mtime)[-3:]


def damage(path: Path) -> None:
    """Cut a file in half."""
    os.truncate(path, path.stat().st_size // 2)


def last_line(text: str) -> str:
    """Return the last line that is not blank."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def pause(seconds: float) -> None:
    """Wait for the time of the next fault, or for the length of an outage."""
    threading.Event().wait(seconds)
