"""Verify agrees with what the loops publish, at any moment: through kills, lost checkpoints and other layouts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import otlp
from support.fuzz import examples
from support.simulation.checkpoints import Batch
from support.simulation.client import SimulatedBroker
from support.simulation.direct import Direct
from support.simulation.partition import Entry
from support.simulation.scheduler import Faults, RandomChoices
from support.simulation.system import TOPICS, Disasters, System
from support.tables import table_settings
from tallystream.errors import ConfigError
from tallystream_aggregator.jobs.aggregate.generations import Generations
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.positions import Layout, by_topic, lowest
from tallystream_aggregator.table.limits import TableSettings
from tallystream_aggregator.table.records.decode import shard_of
from tallystream_aggregator.table.sum_tags import SumTags
from tallystream_aggregator.times import DAY_MS
from tallystream_aggregator.verify import job
from tallystream_aggregator.verify.check import Outcome

QUIET = Disasters(takeover=0, lose_checkpoint=0, old_checkpoint=0, damage_checkpoint=0, compact=0, expire=0)
TAGS = [SumTags(), SumTags(drop=("a",)), SumTags(keep=("b",)), SumTags(keep=())]

STEPS = 300
"""The steps of a simulation between two looks at what is published."""


class Verified(System):
    """A system with a ledger, which verify reads. With `with_otlp`, its table reads a topic of OTLP metrics, too.

    That topic has one partition: which record of an instance comes first would depend on the order of partitions.
    """

    def __init__(self, seed: int, disasters: Disasters, *, with_otlp: bool = False, **parts: Any) -> None:
        super().__init__(RandomChoices(seed), disasters._replace(delete_records=0), **parts)
        self.cluster.create(TOPICS.ledger, 1)
        self._fleet = otlp.Fleet(seed, partitions=1, begin_ns=self.cluster.now_ms * 10**6)
        self._fleet._processes = [otlp.Process(f"otlp-{number}") for number in range(3)]
        del self.rules["short_form_every_ms"]  # verify has that of the aggregator
        self.rules["otlp_topics"] = (otlp.TOPIC,) if with_otlp else ()
        self.table = table_settings(**self.rules)
        if with_otlp:
            self.cluster.create(otlp.TOPIC, 1)
            self.inputs.add(otlp.TOPIC)

    def new_tags(self) -> SumTags:
        """Return any tags."""
        return TAGS[self.scheduler.choose(len(TAGS), "tags")]

    def _start_tasks(self, layout: Layout, generation: int) -> None:
        if generation == self.generation:
            found = [self._newest(shard, b'["positions",%d]' % shard) for shard in range(layout.shards)]
            row = LedgerRow(
                generation=generation,
                end=by_topic(lowest(found)) if all(found) else {},
                shards=layout.shards,
                forget_after_ms=self.rules["forget_after_ms"],
                max_table_bytes=self.table.max_table_bytes,
                otlp=list(self.rules["otlp_topics"]),
            )
            self.cluster.append(Place(TOPICS.ledger, 0), None, ledger.encode(row))
            self._programs.shards = layout.shards
        super()._start_tasks(layout, generation)

    def _feed(self) -> None:
        super()._feed()
        if otlp.TOPIC not in self.inputs or self.scheduler.choose(3, "OTLP"):
            return
        known, place = len(self._fleet.records), Place(otlp.TOPIC, 0)
        self._fleet.step()
        for one in self._fleet.records[known:]:
            self.cluster.clock_offset_ms[place] = one.timestamp_ms - self.cluster.now_ms
            self.cluster.append(place, one.key, one.value)
        if self.scheduler.choose(10, "a record that is no OTLP") == 9:
            bad = [b"\xff\xff", b"{}", b'{"name":"n","value":1}', b'{"forget":{"metric":"x","shards":9}}']
            self.cluster.append(place, b"app-1", bad[self.scheduler.choose(len(bad), "value")])

    def has_sums(self) -> bool:
        """Tell whether something is published, of all shards."""
        agg = self.cluster.partition(Place(TOPICS.agg, 0))
        return bool(agg.committed(0, agg.end))

    def verify(self) -> Outcome:
        """Verify what is published, after the transactions of killed loops have timed out."""
        for transaction in self.cluster.open_transactions():
            self.cluster.expire(transaction.transactional_id)
        self.cluster.write_markers()
        broker: Any = SimulatedBroker(Direct(), self.cluster, self.inputs.__contains__)  # type: ignore[arg-type]
        with mock.patch.object(job, "KafkaBroker", return_value=broker), mock.patch.object(job, "check_login"):
            return job.run(Cluster("memory"))

    def tamper(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Append a record that no loop has published."""
        self.cluster.append(Place(topic, 0), key, value)


@pytest.mark.parametrize("shards", [1, 2, 3])
@examples(12, fixed=True)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_verify_agrees_with_what_is_published_at_any_moment(
    shards: int, seed: int, removals: bool, with_otlp: bool
) -> None:
    """The newest sums, dead letters and events, whatever was killed and lost. Every change is published."""
    system = Verified(seed, Disasters(removals=removals), with_otlp=with_otlp, shards=shards)
    with system.scheduler as scheduler:
        for _ in range(3):
            scheduler.run(STEPS)
            if system.has_sums():
                assert system.verify().differences == []
        assert system.end()
    outcome = system.verify()
    assert outcome.differences == []
    assert outcome.letters is not None
    assert outcome.events is not None


@examples(20, fixed=True)
@given(st.integers(0, 2**32), st.booleans())
def test_verify_agrees_when_the_layout_changes(seed: int, removals: bool) -> None:
    """The table is split into more shards, and its sums get other tags."""
    system = Verified(seed, Disasters(removals=removals, reshard=3))
    with system.scheduler as scheduler:
        for _ in range(3):
            scheduler.run(STEPS)
            if system.has_sums():
                with suppress(ConfigError):  # the combiner has published nothing since the change
                    assert system.verify().differences == []
        assert system.end()
    assert system.verify().differences == []


@pytest.mark.parametrize("is_ahead", [0, 1])
def test_the_settings_of_each_shard_change_where_it_was(is_ahead: int) -> None:
    """A shard that was ahead at a start has refused with the old limit what another one accepts with the new one."""
    direct = Direct(shards=2, table=TableSettings(max_table_bytes=10_000))
    direct.cluster.create(TOPICS.ledger, 1)
    keys = {shard: next(k for n in count() if shard_of(k := b"app-%d" % n, 2) == shard) for shard in (0, 1)}
    others = {shard: next(k for n in count() if shard_of(k := b"new-%d" % n, 2) == shard) for shard in (0, 1)}

    def run(generation: int, loops: Sequence[int]) -> None:
        opened = LedgerRow(shards=2, forget_after_ms=7 * DAY_MS, max_table_bytes=direct.table.max_table_bytes)
        Generations(direct.broker, TOPICS, shards=2).take(opened)
        for loop in (*(direct.loop(shard) for shard in loops), direct.combiner()):
            loop.run_epoch(Batch(0), (generation, 0), 3)

    for shard, key in keys.items():
        direct.feed(1, key=key, name=f"n{shard}")
    run(1, (0, 1))
    for shard, key in others.items():
        direct.feed(1, key=key, name=f"new{shard}")
    run(2, [is_ahead])
    direct.table = TableSettings(max_table_bytes=1 << 20)
    run(3, (0, 1))
    direct.feed(7, key=keys[0], name="n0")
    run(4, (0, 1))
    assert len(direct.values("metrics-dead")) == 1
    with mock.patch.object(job, "KafkaBroker", return_value=direct.broker), mock.patch.object(job, "check_login"):
        outcome = job.run(Cluster("memory"))
    assert (outcome.differences, outcome.letters, outcome.records) == ([], 1, 5)


@pytest.mark.parametrize("topic", [TOPICS.dead, TOPICS.events])
def test_what_retention_has_shortened_is_not_compared(topic: str) -> None:
    """What is left of dead letters and of events differs from all of them, and is no difference."""
    system = published(1)
    system.cluster.partition(Place(topic, 0)).delete_before(1)
    outcome = system.verify()
    assert outcome.differences == []
    assert (outcome.letters is None, outcome.events is None) == (topic == TOPICS.dead, topic == TOPICS.events)


# Each kind of error is found.


COUNTER, GAUGE = b'"counter"', b'"gauge"'


def published(shards: int) -> Verified:
    """Return a system that has published everything: dead letters, events, and metrics of living lives."""
    for seed in count():
        system = Verified(seed, QUIET, shards=shards, faults=Faults())
        with system.scheduler as scheduler:
            scheduler.run(STEPS)
            assert system.end()
        with suppress(StopIteration):
            for topic, kind in ((TOPICS.dead, b""), (TOPICS.events, b""), (TOPICS.agg, COUNTER), (TOPICS.agg, GAUGE)):
                newest(system, topic, kind)
            assert system.verify().differences == []
            return system
    raise AssertionError


def newest(system: Verified, topic: str, kind: bytes = b"") -> Entry:
    """Return the last record of a topic, or the newest sum of a metric of this kind that living lives have."""
    partition = system.cluster.partition(Place(topic, 0))
    records = partition.committed(0, partition.end)
    if not kind:
        return next(reversed(records))
    last = {one.key: one for one in records}.values()
    return next(one for one in last if kind in (one.key or b"") and b'"lives":' in (one.value or b""))


def remove(system: Verified, topic: str, key: bytes | None) -> None:
    """Remove the records with a key."""
    partition = system.cluster.partition(Place(topic, 0))
    partition._keep([one for one in partition.entries if one.key != key])


def found(system: Verified) -> set[str]:
    """Return the fields that differ."""
    return {one.field for one in system.verify().differences}


@pytest.mark.parametrize("shards", [1, 3])
def test_a_wrong_sum_is_found(shards: int) -> None:
    """A count that is one too high, and a gauge of a living life."""
    system = published(shards)
    for kind, field in ((COUNTER, "count"), (GAUGE, "number")):
        entry = newest(system, TOPICS.agg, kind)
        value: dict[str, Any] = json.loads(entry.value or b"")
        value[field] = value.get(field, 0) + 1
        system.tamper(TOPICS.agg, entry.key, json.dumps(value).encode())
        assert field in found(system)
        system.tamper(TOPICS.agg, entry.key, entry.value)
        assert found(system) == set()


@pytest.mark.parametrize("shards", [1, 3])
def test_a_sum_that_is_missing_or_old_is_found(shards: int) -> None:
    """All records of its key are gone, or the last ones."""
    system = published(shards)
    entry = newest(system, TOPICS.agg, COUNTER)
    before = json.loads(entry.value or b"") | {"count": 10**9, "offsets": {"metrics": {"0": -1, "1": 0}}}
    remove(system, TOPICS.agg, entry.key)
    system.tamper(TOPICS.agg, entry.key, json.dumps(before).encode())
    assert "count" in found(system)
    remove(system, TOPICS.agg, entry.key)
    assert found(system) == {"sum"}


@pytest.mark.parametrize("shards", [1, 3])
def test_a_sum_beyond_what_is_published_is_found(shards: int) -> None:
    """It names offsets that no positions row has reached. It hides no other sum."""
    system = published(shards)
    entry = newest(system, TOPICS.agg, COUNTER)
    value = json.loads(entry.value or b"") | {"offsets": {"metrics": {"0": 10**6, "1": 10**6}}}
    system.tamper(TOPICS.agg, entry.key, json.dumps(value).encode())
    assert [one.field for one in system.verify().differences] == ["offsets"]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("topic", "field"), [(TOPICS.dead, "dead letters"), (TOPICS.events, "events")])
def test_a_dead_letter_or_an_event_that_is_missing_or_there_twice_is_found(shards: int, topic: str, field: str) -> None:
    """Each appears exactly once."""
    system = published(shards)
    entry = newest(system, topic)
    system.tamper(topic, entry.key, entry.value)
    assert found(system) == {field}
    remove(system, topic, entry.key)
    assert found(system) == {field}
