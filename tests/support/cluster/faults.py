"""Faults of a cluster of three brokers under load, and what must be true after them."""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from support.aggregator import Aggregator
from support.cluster.brokers import KafkaCluster
from support.faults import OUTAGE_S, pause, under_load
from support.history import violations
from support.journals import Shippers, of_rows, of_sums
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
    when, agrees with the journal. A fault ends when all partitions have a leader.
    """
    chance, led = (
        random.Random(seed),
        (topics.metrics, topics.agg, topics.table, topics.dead, topics.events, TRANSACTIONS),
    )
    shippers = Shippers(cluster.bootstrap_servers, topics.prefix, folder, stores)
    with under_load(cluster, topics, folder, seed) as load:
        journal = load.fleet.journal
        with shippers.watched(journal), load.fleet.publishing():
            for kind in kinds:
                pause(chance.uniform(0, 2))
                _cause(cluster, topics, load.aggregator, kind, chance.uniform(1, 20))
                cluster.start()
                cluster.wait_leaders(led)
                load.wait_recovered(kind, OUTAGE_S)
                shippers.kill()
                shippers.start()
    lines = [
        *of_sums(topics, load.seen[topics.agg], load.seen_at[topics.agg]),
        *of_rows(topics, load.seen[topics.table], load.seen_at[topics.table]),
        *shippers.seen,
    ]
    assert violations([*journal.valid.values()], lines, OUTAGE_S, [topics.agg, topics.table, *stores]) == []


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
