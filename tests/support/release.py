"""What release 0.1 wrote, made once and kept: python -m support.release. Later releases read it (`test_release.py`).

It is never made again: users have it on their brokers and disks.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from support.fuzzing.seeds import lines
from support.fuzzing.stores import NOW_MS, empty_path, history
from support.schedules import play
from support.scripted_producer import KafkaBench
from support.tables import Tables, table_settings
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_aggregator.stream import positions
from tallystream_aggregator.sums import key_of

FOLDER = Path(__file__).parents[1] / "releases" / "0.1"

RULES: dict[str, Any] = {"short_form_every_ms": 5_000, "forget_after_ms": 50_000}
"""The settings of its aggregator, which was stopped in the middle of the topic."""


def reported() -> list[bytes]:
    """Return the records of an application with all metrics that it can have: two reports, and the end of its life."""
    bench = KafkaBench()
    registry, tags = bench.registry, {"topic": "orders"}
    for value in (1, 5):
        registry.counter("records.processed", tags).inc(value)
        registry.updown("jobs.open").inc(-value)
        registry.gauge("queue.size").set(value / 4)
        registry.meter("requests").mark(value)
        registry.histogram("order.size").update(10 * value)
        registry.timer("request.time", {"route": "größe"}).update(value / 8)
        registry.position("orders", 0).advance(100, 100 + value)
        bench.clock.advance(1)
        bench.reporter.report_now()
    bench.reporter.stop()
    return [value for producer in bench.producers for value in producer.values]


def main() -> None:
    """Write everything."""
    if FOLDER.exists():
        sys.exit(f"{FOLDER} exists: what a release wrote is never made again")
    FOLDER.mkdir(parents=True)
    (FOLDER / "reported").write_bytes(b"\n".join(reported()))
    topic = [one._replace(partition=0, offset=at) for at, one in enumerate(play([seed * 34 for seed in range(60)]))]
    (FOLDER / "topic").write_bytes(b"\n".join(msgspec.json.encode(one) for one in topic))
    half = len(topic) // 2
    tables = Tables(topic, table_settings(**RULES))
    tables.step({0: half // 2})
    tables.step({0: half})
    (store,), (table,) = tables.stores, tables.tables
    (FOLDER / "state").write_bytes(msgspec.msgpack.encode([store.head(), *store.entries.values()]))
    (FOLDER / "rows").write_bytes(lines((key, value) for (_, key), value in tables._rows[0].rows.items()))
    row = positions.row_of(table.state, claim=(1, 1), step=2, topics={"metrics": "id"}, begin={}, last={})
    (FOLDER / "positions").write_bytes(positions.encode(row))
    newest = {key_of(metric): value for metric, value in tables.published}
    (FOLDER / "sums").write_bytes(lines(newest.items()))
    path = empty_path()
    with closing(LocalStore(path, clock=lambda: NOW_MS)) as local:
        local.write(history())
        local._open().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (FOLDER / "store.db").write_bytes(path.read_bytes())


if __name__ == "__main__":
    main()
