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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from support.aggregator import Aggregator, Victim
from support.commands import run
from support.exactness import (
    assert_as_acknowledged,
    assert_exact,
    assert_published_once,
)
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


@dataclass(frozen=True)
class Faults:
    """The number of faults. `outages_s` has the length of each outage of the broker, in seconds.

    A checkpoint is lost, or a file of it is cut in half, after a kill. `pauses_s` has the seconds of
    each pause of all processes. In each `takeover` a standby replaces an aggregator that is stopped or killed.
    """

    driver_kills: int
    worker_kills: int
    outages_s: Sequence[float]
    lost_checkpoints: int = 0
    damaged_checkpoints: int = 0
    pauses_s: Sequence[float] = ()
    takeovers: int = 0

    def in_random_order(self, chance: random.Random) -> list[tuple[str, float]]:
        """Return the kinds of all faults, with the seconds of outages and pauses."""
        steps = [("driver", 0.0)] * self.driver_kills + [("worker", 0.0)] * self.worker_kills
        steps += [("broker", seconds) for seconds in self.outages_s]
        steps += [("lost", 0.0)] * self.lost_checkpoints + [("damaged", 0.0)] * self.damaged_checkpoints
        steps += [("pause", seconds) for seconds in self.pauses_s] + [("takeover", 0.0)] * self.takeovers
        chance.shuffle(steps)
        return steps


def random_kills(
    broker: KafkaBroker, topics: Topics, folder: Path, faults: Faults, seed: int, *, shards: int = 1, spark: bool = True
) -> None:
    """Kill the aggregator, its workers and the broker at random times, under load. Check that sums are exact.

    A reader of committed records follows all outputs. What is published is there once, no count falls, verify agrees
    with it. The first kills of the aggregator are one of each kind.
    """
    chance = random.Random(seed)
    # A sum of several shards does not tell which tombstones it includes.
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, seed, tombstones=shards == 1)
    fleet.publish(300)
    kinds: tuple[Victim, ...] = get_args(Victim) if spark else ("tree",)
    takeovers = itertools.cycle([signal.SIGSTOP, signal.SIGKILL])
    victims = itertools.chain(kinds, (chance.choice(kinds) for _ in itertools.count()))
    recovery_s: dict[str, list[float]] = defaultdict(list)
    servers, options = broker.bootstrap_servers, ("--latency", "low", "--shards", str(shards))
    followed = (topics.agg, topics.table, topics.dead, topics.events)
    with (
        following(servers, followed) as seen,
        Aggregator(servers, topics.prefix, folder, *options, spark=spark) as aggregator,
    ):
        aggregator.start().wait_ready()
        with fleet.publishing():
            for number, (kind, seconds) in enumerate(faults.in_random_order(chance)):
                pause(chance.uniform(0, 2))
                limit = RECOVERY_S
                if kind == "broker":
                    broker.kill()
                    pause(seconds)
                    broker.start()
                    limit = OUTAGE_S
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
                due = end_offsets(broker.bootstrap_servers, topics.metrics)
                recovery_s[kind].append(
                    aggregator.wait_committed(topics.metrics, due, limit, f"{kind}: batches are committed again")
                )
        assert_exact(broker, topics, shards=shards)
        assert_as_acknowledged(broker, topics, [fleet])
        assert aggregator.stop() == 0, aggregator.output()
    assert_published(broker, topics, seen)
    for kind, passed_s in recovery_s.items():
        print(f"{kind}: {len(passed_s)} times, recovered in {min(passed_s):.1f} to {max(passed_s):.1f} s")  # noqa: T201
    print(f"the aggregator ended by itself and was started again: {aggregator.restarts} times")  # noqa: T201


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


def assert_published(broker: Servers, topics: Topics, seen: Mapping[str, Sequence[TopicRecord]]) -> None:
    """Check what a reader has followed, and everything that is published."""
    assert_published_once(broker, topics, seen)
    where = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topics.prefix)
    verified = run("verify", *where, timeout=1800)
    assert verified.returncode == 0, verified.stdout + verified.stderr


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
