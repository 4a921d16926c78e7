"""What the table, and verify, make of records of an OTLP topic."""

from __future__ import annotations

from typing import Any

from support.otlp import BEGIN_NS, TOPIC
from support.steps import Published, run
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
    return {
        named(kind, name, tags): {field: value for field in VALUES if (value := getattr(total, field)) is not None}
        for total in changes.totals
        for _, name, kind, tags in [total.metric]
    }


def named(kind: str, name: str, tags: Any) -> str:
    return f"{kind} {name}" + "".join(f" {tag}={text}" for tag, text in tags)


def verified(*values: bytes) -> tuple[Sums, list[str]]:
    """Return the sums by verify's own reader, and its refusals."""
    replay = Replay(Settings(otlp_topics=(TOPIC,)))
    refused: list[str] = []
    for n, value in enumerate(values):
        refused += replay.apply(f"{TOPIC}:0", BEGIN_MS + 3000 + 1000 * n, None, value)
    return {named(kind, name, tags): fields for (_, kind, name, tags), fields in replay.sums().items()}, refused
