"""What is read of known scopes gives the same table as a parser does, whatever is exported and in whatever order."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.otlp import BEGIN_NS, SECOND_NS, TOPIC, counter, encode, gauge, number, resource_metrics
from support.steps import run
from tallystream_aggregator.otlp import decode
from tallystream_aggregator.otlp.scopes import KnownScopes
from tallystream_aggregator.table import Record, State, Table, TableSettings, apply
from tallystream_aggregator.table.state import pack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

STREAMS = ["a", "b", "c", "d", "e", "f"]


class Forgetful(KnownScopes):
    """Knows no scope, so that each one is parsed."""

    def find(self, raw: bytes) -> None:
        """Find nothing."""


def exports(chance: random.Random) -> Iterator[pb.ResourceMetrics]:
    """Yield exports of two processes. Most have the streams of the last one, of which some have a common start time."""
    now_ns = BEGIN_NS
    starts: dict[tuple[str, str], int] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for _ in range(50):
        now_ns += SECOND_NS
        app, odd = chance.choice(["x", "y"]), chance.random() < 0.2
        if (app, "a") not in starts or chance.random() < 0.1:  # it restarts, and some points are baselines
            begins = [now_ns - chance.choice([0, 1, 80_000]) for _ in range(3)]
            starts |= {(app, name): begins[place // 2] for place, name in enumerate(STREAMS)}
            counts.update({(app, name): -counts[app, name] for name in STREAMS})
        metrics = []
        for name in STREAMS:
            counts[app, name] += chance.choice([0, 1, 5])
            if odd and chance.random() < 0.2:
                continue
            value = counts[app, name] - 2 * (odd and chance.random() < 0.3)  # it falls, or is below 0
            metrics.append(counter(name, number(value, starts[app, name], now_ns + (odd and chance.random() < 0.3))))
        if app == "x":
            value = chance.choice([-2, 0.1, 1e300, math.nan if odd else 0.5])
            metrics.append(gauge("load", number(value, 0, now_ns)))
            metrics.append(counter("s", number(now_ns / 1e9, starts[app, "a"], now_ns)))
        found = resource_metrics(metrics, service__name="shop", service__instance__id=app)
        if odd and chance.random() < 0.3:
            found.scope_metrics.append(found.scope_metrics[0])
        yield found


@examples(40)
@given(seed=st.integers(0, 2**32), size=st.sampled_from([1, 5, 100]))
def test_known_scopes_give_the_table_of_parsed_ones(seed: int, size: int) -> None:
    """Sums, dead letters, events, rows and the state are the same, with falls, baselines, repeated and late records."""
    chance = random.Random(seed)
    found = [(at + chance.choice([0, 0, 0, 8]), encode(one)) for at, one in enumerate(exports(chance))]  # some are late
    found += [(at + 9, value) for at, value in chance.choices(found, k=10)]  # and some arrive twice
    values = [value for _, value in sorted(found)]
    offsets, at_ms = count(), BEGIN_NS // 1_000_000 + 60_000
    records = [Record(TOPIC, chance.randrange(2), next(offsets), at_ms, b"", value) for value in values]
    known, parsed = (Table(State(), TableSettings(otlp_topics=(TOPIC,))) for _ in range(2))
    scopes = KnownScopes()
    for first in range(0, len(records), size):
        step = records[first : first + size]
        with patch.object(decode, "_scopes", scopes):
            published = run(known, step)
        with patch.object(decode, "_scopes", Forgetful()):
            assert run(parsed, step) == published
        assert pack(parsed.state) == pack(known.state)


def test_the_counts_of_a_known_scope_replace_a_block() -> None:
    """No metric of it is read: a process that exports the same streams again costs a subtraction for each."""

    def export(value: int) -> Record:
        metrics = [counter(name, number(value, BEGIN_NS, BEGIN_NS + value)) for name in STREAMS]
        value_of_record = encode(resource_metrics(metrics, service__name="shop"))
        return Record(TOPIC, 0, value, BEGIN_NS // 1_000_000, b"", value_of_record)

    table = Table(State(), TableSettings(otlp_topics=(TOPIC,)))
    with patch.object(decode, "_scopes", KnownScopes()):
        run(table, [export(1), export(2)])
        with patch.object(apply, "replace_rows", None):
            published = run(table, [export(5)])
    assert {one.metric[1]: one.count for one in published.totals} == dict.fromkeys(STREAMS, 5)
