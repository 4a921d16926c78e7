"""Verify agrees with what the loops publish, at any moment: through kills, lost checkpoints and other layouts."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.aggregated import Aggregated
from support.fuzz import examples
from support.simulation.system import TOPICS
from tallystream.errors import ConfigError
from tallystream_aggregator.stream.broker import Place

if TYPE_CHECKING:
    from support.simulation.partition import Entry


@pytest.mark.parametrize("shards", [1, 2, 3])
@examples(12, fixed=True)
@given(st.integers(0, 2**32), st.booleans(), st.booleans())
def test_verify_agrees_with_what_is_published_at_any_moment(shards: int, seed: int, removals: bool, otlp: bool) -> None:
    """The newest sums, dead letters and events, whatever was killed and lost. Every change is published."""
    chance = random.Random(seed)
    system = Aggregated(chance, shards=shards, removals=removals, otlp=otlp)
    for _ in range(30):
        system.step(changes=False)
        if chance.random() < 0.1 and system.has_sums():
            assert system.verify().differences == []
    system.finish()
    outcome = system.verify()
    assert outcome.differences == []
    assert outcome.letters is not None
    assert outcome.events is not None


@examples(20, fixed=True)
@given(st.integers(0, 2**32), st.booleans())
def test_verify_agrees_when_the_layout_changes(seed: int, removals: bool) -> None:
    """The table is split into more shards, and its sums get other tags."""
    chance = random.Random(seed)
    system = Aggregated(chance, removals=removals)
    for _ in range(30):
        system.step(changes=True)
        if chance.random() < 0.1 and system.has_sums():
            with suppress(ConfigError):  # the combiner has published nothing since the change
                assert system.verify().differences == []
    system.finish()
    assert system.verify().differences == []


# Each kind of error is found.


COUNTER, GAUGE = b'"counter"', b'"gauge"'


def published(shards: int) -> Aggregated:
    """Return a system that has published everything: dead letters, events, and metrics of living lives."""
    for seed in count():
        system = Aggregated(random.Random(seed), shards=shards, kills=0)
        for _ in range(30):
            system.step(changes=False)
        system.finish()
        with suppress(StopIteration):
            for topic, kind in ((TOPICS.dead, b""), (TOPICS.events, b""), (TOPICS.agg, COUNTER), (TOPICS.agg, GAUGE)):
                newest(system, topic, kind)
            assert system.verify().differences == []
            return system
    raise AssertionError


def newest(system: Aggregated, topic: str, kind: bytes = b"") -> Entry:
    """Return the last record of a topic, or the newest sum of a metric of this kind that living lives have."""
    system.flush()
    partition = system.cluster.partition(Place(topic, 0))
    records = partition.committed(0, partition.end)
    if not kind:
        return next(reversed(records))
    last = {one.key: one for one in records}.values()
    return next(one for one in last if kind in (one.key or b"") and b'"lives":' in (one.value or b""))


def remove(system: Aggregated, topic: str, key: bytes | None) -> None:
    """Remove the records with a key."""
    partition = system.cluster.partition(Place(topic, 0))
    partition._keep([one for one in partition.entries if one.key != key])


def found(system: Aggregated) -> set[str]:
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
