"""Faults of a cluster of three brokers under load, and what must be true after them."""

from __future__ import annotations

import itertools
import random
import signal
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from support.aggregator import Aggregator
from support.cluster.brokers import KafkaCluster
from support.exactness import assert_as_acknowledged, assert_exact
from support.faults import OUTAGE_S, assert_published, pause
from support.fleet import Fleet
from support.history import violations
from support.journals import Shippers, of_rows, of_sums
from support.kafka import end_offsets, following
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sinks.stores import StoreSettings

TRANSACTIONS = "__transaction_state"
KINDS = (
    "leader killed",
    "leader cut off from brokers",
    "follower paused",
    "controller killed",
    "coordinator killed",
    "leader cut off from all",
    "leader paused",
    "leader slow",
    "rolling restart",
    "aggregator killed with the leader",
)
"""A leader is that of `metrics-table`, and a coordinator that of the writer's transactions."""


def cluster_faults(
    cluster: KafkaCluster,
    topics: Topics,
    folder: Path,
    kinds: Sequence[str],
    *,
    seed: int,
    stores: Mapping[str, StoreSettings],
) -> None:
    """Cause each of the faults under load, for 1 to 20 seconds. Check what `random_kills` checks.

    After each of them the shippers to the `stores` are killed. What readers of the topics and of the stores see, and
    when, agrees with the journal. Prints how long after the fault, when all partitions have a leader, the newest
    records are summed.
    """
    chance, servers = random.Random(seed), cluster.bootstrap_servers
    fleet = Fleet(servers, topics.metrics, seed)
    fleet.publish(300)
    recovery_s: dict[str, list[float]] = defaultdict(list)
    published = (topics.agg, topics.table, topics.dead, topics.events)
    seen_at: dict[str, list[float]] = {}
    shippers = Shippers(servers, topics.prefix, folder, stores)
    with (
        following(servers, published, seen_at) as seen,
        Aggregator(servers, topics.prefix, folder, "--latency", "low") as aggregator,
    ):
        aggregator.start().wait_ready()
        with shippers.watched(fleet.journal), fleet.publishing():
            for kind in kinds:
                pause(chance.uniform(0, 2))
                _cause(cluster, topics, aggregator, kind, chance.uniform(1, 20))
                cluster.start()
                cluster.wait_leaders([topics.metrics, *published, TRANSACTIONS])
                due = end_offsets(servers, topics.metrics)
                waited = aggregator.wait_committed(topics.metrics, due, OUTAGE_S, f"{kind}: steps are committed again")
                recovery_s[kind].append(waited)
                shippers.kill()
                shippers.start()
        assert_exact(cluster, topics)
        assert_as_acknowledged(cluster, topics, [fleet])
        assert aggregator.stop() == 0, aggregator.output()
    assert_published(cluster, topics, seen)
    lines = [
        *of_sums(topics, seen[topics.agg], seen_at[topics.agg]),
        *of_rows(topics, seen[topics.table], seen_at[topics.table]),
        *shippers.seen,
    ]
    assert violations(fleet.journal.lines(), lines, OUTAGE_S, [topics.agg, topics.table, *stores]) == []
    for kind, passed_s in recovery_s.items():
        print(f"{kind}: {len(passed_s)} times, recovered in {min(passed_s):.1f} to {max(passed_s):.1f} s")  # noqa: T201
    print(f"the aggregator ended by itself and was started again: {aggregator.restarts} times")  # noqa: T201


def _cause(cluster: KafkaCluster, topics: Topics, aggregator: Aggregator, kind: str, seconds: float) -> None:
    leader = cluster.leader(topics.table)
    match kind.split():
        case ["rolling", "restart"]:
            for node in cluster.nodes.values():
                node.stop()
                cluster.start()
        case [*_, "from", where]:
            cluster.network.cut_off(leader, clients_too=where == "all")
            pause(seconds)
            cluster.network.heal()
        case [_, "slow"]:
            cluster.network.delay(leader, 0.3)
            pause(seconds)
            cluster.network.heal()
        case [who, "paused"]:
            number = leader if who == "leader" else next(n for n in cluster.nodes if n != leader)
            process = psutil.Process(cluster.nodes[number].pid)
            process.send_signal(signal.SIGSTOP)
            pause(seconds)
            process.send_signal(signal.SIGCONT)
        case [who, "killed", *more]:
            _kill(cluster, leader if who == "leader" else who, aggregator if more else None, seconds)
        case _:
            raise AssertionError(kind)


def _kill(cluster: KafkaCluster, victim: int | str, aggregator: Aggregator | None, seconds: float) -> None:
    """Kill a broker for some seconds: a number, the controller or the coordinator; and an aggregator too, if given."""
    if victim == "controller":
        number = cluster.controller()
    else:
        number = cluster.leader(TRANSACTIONS) if isinstance(victim, str) else victim
    if aggregator is not None:
        aggregator.kill("tree")
    cluster.nodes[number].kill()
    pause(seconds)
    if aggregator is not None:
        aggregator.start()


def mixed(number: int, seed: int) -> list[str]:
    """Return that many faults, of each kind about as many, in a random order."""
    kinds = list(itertools.islice(itertools.cycle(KINDS), number))
    random.Random(seed).shuffle(kinds)
    return kinds
