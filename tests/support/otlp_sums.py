"""What the table, and verify, make of records of an OTLP topic."""

from __future__ import annotations

import struct
from typing import Any

from support.otlp import BEGIN_NS, TOPIC
from support.steps import Published, run
from tallystream.record import bounds_tag
from tallystream_aggregator.sums import VALUES
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.replay import Replay

BEGIN_MS = BEGIN_NS // 1_000_000
APP = {"service__name": "shop", "service__instance__id": "app-1"}

Sums = dict[str, dict[str, Any]]


def apply(*values: bytes, key: bytes | None = None) -> Published:
    """Return what the table makes of records, appended a second apart from the third second on."""
    table = Table(State(), TableSettings(otlp_topics=(TOPIC,)))
    records = [Record(TOPIC, 0, n, BEGIN_MS + 3000 + 1000 * n, key, value) for n, value in enumerate(values)]
    return run(table, records)


def sums_of(changes: Published) -> Sums:
    """Return the fields of each sum that have a value, by its type, name and tags as text."""
    fields = (*VALUES, "bounds", "counts")
    return {
        named(kind, name, tags): {name: value for name in fields if (value := getattr(total, name)) not in (None, [])}
        for total in changes.totals
        for _, name, kind, tags in [total.metric]
    }


def named(kind: str, name: str, tags: Any) -> str:
    return f"{kind} {name}" + "".join(f" {tag}={text}" for tag, text in tags)


def buckets(*bounds: float) -> str:
    """Return how explicit buckets of the metric `t` with these bounds are named."""
    return f"buckets t bounds={bounds_tag(struct.pack(f'<{len(bounds)}d', *bounds))}"


def verified(*values: bytes) -> tuple[Sums, list[str]]:
    """Return the sums by verify's own reader, and its refusals."""
    replay = Replay(Settings(otlp_topics=(TOPIC,)))
    refused: list[str] = []
    for n, value in enumerate(values):
        refused += replay.apply(f"{TOPIC}:0", BEGIN_MS + 3000 + 1000 * n, None, value)
    sums = replay.sums().items()
    return {named(kind, name, tags): found for (_, kind, name, tags), found in sums if kind != "instances"}, refused
