"""Generations of drivers: unique and rising, whatever fails and whoever else takes one at the same time."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.fuzz import examples
from support.simulation.broker import Action, SimulatedCluster
from support.simulation.client import SimulatedBroker
from support.simulation.processes import Process
from support.simulation.scheduler import Faults, HarmlessChoices, RandomChoices, Scheduler
from tallystream_aggregator.jobs.aggregate.generations import Generations
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.lease import LeaseError
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.stream.broker import BrokerError, FencedError, Output, Place
from tallystream_aggregator.stream.positions import PositionsRow, encode, key_of, visible_row

TOPICS = Topics()
LEDGER = Place(TOPICS.ledger, 0)


OPENED, CHANGED = (LedgerRow(shards=shards, forget_after_ms=1, max_table_bytes=1) for shards in (1, 2))


def new_cluster() -> SimulatedCluster:
    cluster = SimulatedCluster()
    for topic in (TOPICS.ledger, TOPICS.table):
        cluster.create(topic, 1)
    return cluster


def generations(process: Process, cluster: SimulatedCluster) -> Generations:
    return Generations(SimulatedBroker(process, cluster, lambda _: False), TOPICS, shards=1)


def rows_of(cluster: SimulatedCluster) -> list[LedgerRow]:
    partition = cluster.partition(LEDGER)
    return list(ledger.rows(entry.value for entry in partition.committed(0, len(partition.entries))))


def alone(run: Callable[[Process, SimulatedCluster], object], cluster: SimulatedCluster | None = None) -> object:
    """Run a process by itself, without faults, and return what it returned. Raises what it raised."""
    with Scheduler(HarmlessChoices(), cluster or new_cluster(), expected=(BrokerError, LeaseError)) as scheduler:
        process = scheduler.spawn("driver", lambda one: run(one, scheduler.cluster))
        while scheduler.step():
            pass
        assert process.ended
        if process.error is not None:
            raise process.error
        return process.result


def test_a_deleted_ledger_gives_no_generation_again() -> None:
    """The positions row names the generation of its writer, so the next one is higher. The row has these positions."""
    cluster = new_cluster()
    row = PositionsRow(shard=0, claim=(7, 0), step=1, positions={"metrics": {"0": 5}}, topics={})
    cluster.append(Place(TOPICS.table, 0), key_of(0), encode(row))
    assert alone(lambda process, cluster: generations(process, cluster).take(OPENED), cluster) == 8
    assert [one.end for one in rows_of(cluster)] == [row.positions]


def test_a_row_that_is_not_visible_has_a_generation_that_is_taken() -> None:
    """Kafka has left its transaction open. The next row ends it, and has the next generation."""
    cluster = new_cluster()
    alone(lambda process, cluster: generations(process, cluster).take(OPENED), cluster)
    transaction = cluster.transactions[-1]
    cluster.partition(LEDGER).truncate(1)  # its marker
    assert cluster.partition(LEDGER).open == {transaction.number: 0}
    assert alone(lambda process, cluster: generations(process, cluster).take(OPENED), cluster) == 2
    assert [row.generation for row in rows_of(cluster)] == [1, 2]


def test_a_ledger_that_is_missing_gives_no_generation() -> None:
    """A broker that has just started may not know it yet, so the driver asks again."""
    cluster = new_cluster()
    cluster.delete(TOPICS.ledger)
    with pytest.raises(BrokerError, match="metrics-ledger: it has no partition 0"):
        alone(lambda process, cluster: generations(process, cluster).take(OPENED), cluster)


@pytest.mark.parametrize("commit_failed", [False, True])
def test_a_replaced_driver_changes_nothing(*, commit_failed: bool) -> None:
    """Its writer is fenced, and the ledger says who has replaced it. So is a new one, as after a commit that failed."""
    cluster = new_cluster()

    def run(process: Process, cluster: SimulatedCluster) -> None:
        first, second = generations(process, cluster), generations(process, cluster)
        first.take(OPENED)
        if commit_failed:
            first.close()
            first.change(OPENED)
        second.take(OPENED)
        if commit_failed:
            first.close()
        first.change(OPENED)

    with pytest.raises(LeaseError, match="took over with generation 2, ours was 1"):
        alone(run, cluster)
    assert [row.generation for row in rows_of(cluster)] == [1] * (1 + commit_failed) + [2]


def change_layout(process: Process, cluster: SimulatedCluster) -> None:
    """Change the layout, as `rebuild` does: the new number of shards is the generation + 1."""
    mine = generations(process, cluster)
    while True:
        try:
            mine.take(OPENED)
            row = PositionsRow(shard=0, of=1 + mine.now, claim=(mine.now, 0), step=mine.now, positions={}, topics={})
            mine.change(CHANGED, [Output(Place(TOPICS.table, 0), key_of(0), encode(row))])
        except (BrokerError, FencedError):
            continue


@given(seed=st.integers(0, 2**32))
@example(seed=204)
@examples(60, fixed=True)
def test_a_driver_that_has_read_the_layout_runs_beside_no_change_of_it(seed: int) -> None:
    """A change of a lower generation is committed before the driver reads the layout, or never.

    Through kills, pauses and lost answers, each generation is taken once, and they rise in the ledger.
    """
    cluster, found = new_cluster(), list[tuple[int, int]]()

    def read_layout(process: Process, cluster: SimulatedCluster) -> None:
        mine, broker = generations(process, cluster), SimulatedBroker(process, cluster, lambda _: False)
        while True:
            try:
                generation = mine.take(OPENED)
                row = visible_row(broker, Place(TOPICS.table, 0), 0)
            except (BrokerError, FencedError):
                continue
            found.append((generation, 1 if row is None else row.of))

    faults = Faults(kill_before=30, kill_after=30, lose_answer=100, fail=30, late=300, freeze=300)
    with Scheduler(RandomChoices(seed), cluster, faults=faults, expected=(BrokerError, FencedError, LeaseError)) as run:
        run.actions = lambda: (
            [
                Action(2, "change", lambda: run.spawn("change", lambda p: change_layout(p, cluster))),
                Action(2, "driver", lambda: run.spawn("driver", lambda p: read_layout(p, cluster))),
            ]
            if sum(not process.ended for process in run.processes) < 3
            else []
        )
        run.run(400)
        while action := next(cluster.actions(), None):
            action.run()
    partition = cluster.partition(Place(TOPICS.table, 0))
    changes = [json.loads(entry.value or b"")["of"] for entry in partition.committed(0, len(partition.entries))]
    for generation, shards in found:
        # The change of generation n has n + 1 shards. A driver that was replaced may find a later one.
        assert max((of for of in changes if of <= generation), default=1) <= shards
    taken = [row.generation for row in rows_of(cluster) if row.shards == OPENED.shards]
    assert taken == sorted(set(taken))
