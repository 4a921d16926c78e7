"""Make the corpus by the product's own code: python -m support.fuzzing.seeds. What was found there stays."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from typing import Any

import msgspec

from support.fuzzing.stores import NOW_MS, empty_path, history
from support.fuzzing.targets import CORPUS
from support.malformed import BAD_BUCKETS, BAD_METRICS, BAD_SKETCHES, ODD, ODD_METRICS, POISON, UNDECODABLE
from support.otlp import Fleet
from support.replayed import TopicRecord
from support.runs import RULES, new_tables
from support.schedules import play, sketch
from support.steps import FIRST
from support.tables import Tables
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_aggregator.stream import positions
from tallystream_aggregator.stream.broker import OffsetAndEpoch, Place
from tallystream_aggregator.table import TableSettings
from tallystream_aggregator.table.combiners import encode
from tallystream_aggregator.table.records.decode import CLOCK_KEY, Forget, clock_value

Pairs = Iterable[tuple[bytes | None, bytes | None]]


def lines(pairs: Pairs) -> bytes:
    """Return records as an input. What a line can't have is left out."""
    found = [key if value is None else key + b"\t" + value for key, value in pairs if key is not None]
    return b"\n".join(one for one in found if b"\n" not in one)


def tables_of(records: list[TopicRecord], shards: int = 1) -> Tables:
    """Return tables that have read these records."""
    tables = new_tables(records, RULES, shards)
    tables.step({0: len(records) // 2})
    tables.step({0: len(records)})
    return tables


Inputs = Iterator[tuple[str, str, bytes]]
"""Target, name and content of each input."""

TOPICS = [play([seed * 1_000 + n for n in range(12)]) for seed in range(4)]
COUNTS = [b'{"name":"a","value":%d}' % n for n in (1, 2, 2, 5, 3, 4, 9)]
FORGET = [Forget().value(), Forget(metric="n", tags={"a": "b"}).value(), Forget(life=FIRST).value()]
CLOCK = [(CLOCK_KEY, clock_value(1_700_000_000_000 + 90 * 86_400_000))]
WHOLE = [one for one in (*POISON, *ODD) if len(one) < 600]


def of_tables() -> Inputs:
    """Yield records, and what tables make of them."""
    for number, topic in enumerate(TOPICS):
        yield "records", f"topic-{number}", lines((one.key, one.value) for one in topic)
        tables = tables_of(topic)
        yield "rows", f"topic-{number}", lines((key, value) for (_, key), value in tables._rows[0].rows.items())
        (store,) = tables.stores
        yield "states", f"topic-{number}", msgspec.msgpack.encode([store.head(), *store.entries.values()])
        agg = [(b"agg " + key, value) for (_, key), value in newest(tables).items()]
        own = [(b"table " + key, value) for (_, key), value in tables._rows[0].rows.items()]
        yield "shipped", f"topic-{number}", lines([*agg[:20], *own[:8]])


def of_records() -> Inputs:
    """Yield records of all kinds, with metrics of all kinds."""
    metric = b'{"app":"a","life":"%b","part":0,"seq":%d,"ts":0,"every_ms":1000,"final":false,"metrics":[%b]}'
    listed = (*BAD_METRICS, *ODD_METRICS, *(f'{{"type":"buckets","name":"b","count":1,{one}}}' for one in BAD_BUCKETS))
    texts = [text.encode() for text in listed if len(text) < 600]
    for n in range(0, len(texts), 10):
        each = (metric % (FIRST.encode(), seq, one) for seq, one in enumerate(texts[n : n + 10], 1))
        yield "records", f"metrics-{n}", lines((b"i", one) for one in each)
    for n in range(0, len(WHOLE), 10):
        yield "records", f"values-{n}", lines((b"i", one) for one in WHOLE[n : n + 10])
    yield "records", "forget", lines([(b"i", COUNTS[0]), *((b"i", one) for one in FORGET), *CLOCK])
    tagged = [b'{"name":"b","value":%d,"tags":{"zone":"eu"}}' % n for n in (1, 7, 8)]
    many = [(b"ij"[n % 2 : n % 2 + 1], value) for n, value in enumerate((*COUNTS, *tagged, *COUNTS))]
    yield "short-forms", "runs", lines([*many, (b"i", None), *many[:5], (b"j", FORGET[1]), *CLOCK, *many[:5]])
    yield "short-forms", "odd", lines((b"i", one) for one in WHOLE)


def of_values() -> Inputs:
    """Yield sketches and OTLP."""
    chance = random.Random(1)
    for number in range(6):
        yield "sketches", f"sketch-{number}", json.dumps(sketch(chance, 3 * number + 1)).encode()
    for number in range(0, len(BAD_SKETCHES), 4):
        yield "sketches", f"bad-{number}", BAD_SKETCHES[number].encode()[:3_000]
    fleet = Fleet(7)
    for _ in range(9):
        fleet.step()
    for number, one in enumerate(fleet.records[:6]):
        yield "otlp", f"fleet-{number}", one.value or b""


def of_own_topics() -> Inputs:
    """Yield records of the aggregator's own topics."""
    sharded = tables_of(TOPICS[0], shards=2)
    for number, table in enumerate(sharded.tables):
        table.publish_all()
        for place, one in enumerate(table.outputs().shard_sums[:8]):
            yield "shard-sums", f"shard-{number}-{place}", encode(one)
    state = tables_of(TOPICS[1]).states[0]
    row = positions.row_of(
        state,
        claim=(2, 1),
        step=7,
        topics={"metrics": "id"},
        begin={"metrics": {"0": 3}},
        last_records={Place("metrics", 0): OffsetAndEpoch(4, 2)},
        settings=TableSettings(forget_after_ms=7, otlp_topics=("otlp",)),
        replay_since=3,
    )
    yield "positions", "shard", positions.encode(row)
    row.of, row.shard, row.shards = 2, 2, {"0": {"metrics": {"0": 5}}, "1": {"metrics": {"0": 7}}}
    yield "positions", "combiner", positions.encode(row)
    settings: dict[str, Any] = {"shards": 1, "forget_after_ms": 604_800_000, "max_table_bytes": 2**31}
    begins = ledger.LedgerRow(generation=1, ts=NOW_MS, start={"metrics": {"0": 5}}, otlp=["otlp"], **settings)
    ends = ledger.LedgerRow(generation=1, ts=NOW_MS, end={"metrics": {"0": 9}}, **settings)
    yield "ledger", "rows", b"\n".join(map(ledger.encode, (begins, ends)))
    for name, value in UNDECODABLE.items():
        if len(value) < 600:
            for target in ("ledger", "positions", "shard-sums"):
                yield target, name.replace(" ", "-"), value


def of_stores() -> Inputs:
    """Yield a store, and points."""
    yield "local-store", "history", _local_store()
    points = [[dict(one.tags), one.ts_ms, dict(one.fields)] for one in history()]
    named = [
        (one.measurement.encode(), json.dumps(value).encode()) for one, value in zip(history(), points, strict=True)
    ]
    yield "points", "newest", lines(named[-25:])
    yield "points", "first", lines(named[:12])


def of_servers() -> Inputs:
    """Yield requests."""
    at = "at=2023-11-14T22:13:10"
    for number, path in enumerate(PATHS):
        yield "path", f"path-{number}", path.replace("AT", at).encode()
        if number % 3 == 0:
            head = f"GET {path.replace('AT', at)} HTTP/1.1\r\nHost: localhost:9100\r\nUser-Agent: x\r\n\r\n"
            yield "request", f"get-{number}", head.encode()
    yield "request", "head", b"HEAD /metrics HTTP/1.0\r\nHost: [::1]:80\r\nX: y\r\n z\r\n\r\n"
    yield "request", "post", b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nabcde"
    cookie = "a=b; tallystream_page_80=1800000000." + "0" * 64
    for method, path, body in (
        *(("GET", "/", ""), ("WS", "/_stcore/stream", ""), ("POST", "/?group=a&x=%0d%0a", "password=open+sesame")),
        *(("POST", "/", "password=no"), ("GET", "/_stcore/health", "")),
    ):
        name = f"{method}-{len(path)}".lower()
        yield "page", name, f"{method}\n{path}\n127.0.0.1:8501\n{cookie}\n{body}".encode()


PATHS = (
    *("/metrics", "/healthz", "/readyz", "/v1/groups", "/v1/groups/billing", "/v1/groups/gr%C3%B6%C3%9Fe%20%2F%201"),
    *("/v1/groups?AT", "/v1/groups/audit?AT", "/v1/sums", "/v1/sums?app=billing&name=*.proc*", "/v1/sums?AT&app="),
    *("/v1/instances?app=billing", "/v1/instances?app=billing&metric=billing.processed&AT", "/v1/compare"),
    *("/v1/compare?processed=billing.processed", "/v1/compare?sent=shop&processed=billing.processed&AT"),
    *("/v1/compare?group=billing", "/v1/problems", "/v1/nothing?x=%ff", "//host/v1/groups/[a", "/v1/sums?name=[a-"),
)


def newest(tables: Tables) -> dict[tuple[int, bytes], bytes]:
    """Return the newest sum of each metric."""
    from tallystream_aggregator.sums import key_of

    return {(0, key_of(metric)): value for metric, value in tables.published}


def _local_store() -> bytes:
    path = empty_path()
    with closing(LocalStore(path, clock=lambda: NOW_MS)) as store:
        store.write([one for one in history() if one.ts_ms >= NOW_MS - 10_000])
        store._open().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


def main() -> None:
    """Write them."""
    made = (of_tables(), of_records(), of_values(), of_own_topics(), of_stores(), of_servers())
    for target, name, content in chain(*made):
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        (CORPUS / target / name).write_bytes(content)


if __name__ == "__main__":
    main()
