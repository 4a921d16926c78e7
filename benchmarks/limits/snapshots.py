"""Hostile records of `metrics`: snapshots, the short form, forget records, tombstones, and what can't be read."""

from __future__ import annotations

import itertools
from base64 import b64encode
from typing import TYPE_CHECKING, NamedTuple

from tallystream.ulid import ulid
from tallystream_aggregator.table.records.decode import CLOCK_KEY, Record, clock_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NOW_MS = 1_700_000_000_000
BYTES = 65_536
"""About the size of the records of an input, in bytes."""

Row = tuple[bytes | None, bytes | None]
"""(key, value)"""


class Input(NamedTuple):
    """Records whose cost is measured, and those that are applied before them."""

    parser: str
    name: str
    records: list[Record]
    before: list[Record] = []  # noqa: RUF012 (a tuple's default is never changed)


def input_of(parser: str, name: str, rows: Iterable[Row], before: Iterable[Row] = (), topic: str = "metrics") -> Input:
    """Return an input whose records have these keys and values."""
    offsets = itertools.count()

    def records(given: Iterable[Row]) -> list[Record]:
        return [Record(topic, 0, next(offsets), NOW_MS, *row, NOW_MS) for row in given]

    earlier = records(before)
    return Input(parser, name, records(rows), earlier)


def life(number: int = 0) -> str:
    """Return the ULID of a life."""
    return ulid(NOW_MS - 10_000_000 + number, number)


def snapshot(metrics: Iterable[str], number: int = 0, **header: object) -> bytes:
    """Return a snapshot of a life. `header` replaces fields, as JSON texts."""
    fields = {"app": '"a"', "part": "0", "seq": "1", "every_ms": "60000", "final": "false"} | header
    text = ",".join(f'"{name}":{value}' for name, value in fields.items())
    return f'{{"life":"{life(number)}","ts":0,{text},"metrics":[{",".join(metrics)}]}}'.encode()


VALUES = {
    "counter": '"count":{}',
    "float_counter": '"sum":{}.5',
    "gauge": '"value":{}',
    "updown": '"value":{}',
    "meter": '"count":{},"mean_rate":1.5,"m1_rate":1.5,"m5_rate":1.5,"m15_rate":1.5',
    "histogram": '"count":{},"sum":1.5',
    "timer": '"count":{},"sum":1.5',
    "position": '"start":0,"position":{}',
}


def metric(kind: str, name: object, value: int = 1, more: str = "") -> str:
    """Return a metric as JSON."""
    return f'{{"name":"{name}","type":"{kind}",{VALUES[kind].format(value)}{more}}}'


def fill(item: Iterable[str], size: int = BYTES) -> list[str]:
    """Return as many items as fit into `size` bytes."""
    found, left = [], size
    for one in item:
        left -= len(one.encode()) + 1
        if left < 0:
            break
        found.append(one)
    return found


def each(size: int, make: str) -> list[str]:
    """Return as many items as fit, with a number for each `%x` of `make`."""
    return fill((make.replace("%x", f"{n:x}") for n in itertools.count()), size)


def types() -> Iterator[Input]:
    """Yield snapshots with as many metrics of each type as fit: new ones, the next snapshots, and falling counts."""
    for kind in VALUES:
        names = [f"{n:x}" for n in range(len(each(BYTES, metric(kind, "%x"))))]
        first, same, lower = ([metric(kind, name, value) for name in names] for value in (5, 6, 4))
        other = [metric(kind, name, 6) for name in reversed(names)]
        before = [(b"h", snapshot(first))]
        yield input_of("snapshot", f"{kind}: new", [(b"h", snapshot(first))])
        yield input_of("snapshot", f"{kind}: the next values", [(b"h", snapshot(same, seq=2))], before)
        yield input_of("snapshot", f"{kind}: in another order", [(b"h", snapshot(other, seq=2))], before)
        yield input_of("snapshot", f"{kind}: lower values", [(b"h", snapshot(lower, seq=2))], before)
        yield input_of("snapshot", f"{kind}: none of the metrics", [*before, (b"h", snapshot([], seq=2))])
        yield input_of("snapshot", f"{kind}: a tenth of them, a new life", [(b"h", snapshot(same[::10], 1))], before)


def metrics() -> Iterator[Input]:
    """Yield snapshots with metrics that are refused, or that have unusual numbers, names or tags."""
    tags = ",".join(f'"{chr(65 + n) if n < 26 else chr(71 + n)}":"%x"' for n in range(32))
    long = ",".join(f'"{n:0128}":"{"v" * 512}"' for n in range(31))
    for name, items in {
        "numbers": each(BYTES, "1"),
        "empty objects": each(BYTES, "{}"),
        "nested lists": each(BYTES, "[[[[[]]]]]"),
        "counters without a count": each(BYTES, '{"name":"a","type":"counter"}'),
        "unknown types": each(BYTES, '{"name":"a%x","type":"?","count":1}'),
        "one metric many times": each(BYTES, metric("counter", "a")),
        "NUL in each name": each(BYTES, metric("counter", r"\u0000")),
        "NaN": each(BYTES, metric("gauge", "%x").replace("1", "NaN")),
        "gauges of 1e308": each(BYTES, metric("gauge", "%x").replace(":1", ":1e308")),
        "gauges of 5e-324": each(BYTES, metric("gauge", "%x").replace(":1", ":5e-324")),
        "gauges of 400 digits": each(BYTES, metric("gauge", "%x").replace(":1", ":" + "9" * 400)),
        "float counters of 5e-324 and 1e308": [
            one
            for n in range(700)
            for one in (
                f'{{"name":"s{n}","type":"float_counter","sum":5e-324}}',
                f'{{"name":"l{n}","type":"float_counter","sum":1e308}}',
            )
        ],
        "names of control characters": each(BYTES, metric("counter", r"\u0001" * 500 + "%x")),
        "names of U+10FFFF": each(BYTES, metric("counter", "\U0010ffff" * 500 + "%x")),
        "names of 513 characters": each(BYTES, metric("counter", "n" * 513)),
        "32 short tags": each(BYTES, metric("counter", "a", more=f',"tags":{{{tags}}}')),
        "33 tags": each(BYTES, metric("counter", "a", more=f',"tags":{{{tags},"b":""}}')),
        "31 long tags": each(BYTES, metric("counter", "a%x", more=f',"tags":{{{long}}}')),
        "unknown fields": each(BYTES, metric("counter", "%x", more=',"x":[[[{"y":{}}]]]')),
    }.items():
        yield input_of("snapshot", name, [(b"h", snapshot(items))])


def run(offset: int, *counts: int, width: int = 1) -> str:
    """Return consecutive buckets of a sketch as JSON."""
    packed = b64encode(b"".join(count.to_bytes(width, "little") for count in counts)).decode()
    return f'{{"offset":{offset},"width":{width},"counts":"{packed}"}}'


def sketched(count: int, *runs: str, scale: int = 6, more: str = "") -> str:
    """Return a histogram whose sketch has these runs of buckets."""
    sketch = f'"scale":{scale},"positive":[{",".join(runs)}]{more}'
    return metric("histogram", "%x", count, f',"sketch":{{{sketch}}}')


def sketches() -> Iterator[Input]:
    """Yield snapshots of histograms whose sketches are sparse, wide, negative, or fine and coarse in turn."""
    far = run(-2048, 1), run(2047, 1)
    negative = f',"negative":[{far[0]},{far[1]}]'
    for name, items in {
        "two values in 4,096 buckets": each(BYTES, sketched(2, *far)),
        "the same in both signs": each(BYTES, sketched(4, *far, more=negative)),
        "empty buckets between": each(BYTES, sketched(2, run(-2048, 1, *[0] * 4_094, 1))),
        "empty buckets only": each(BYTES, sketched(0, run(-2048, *[0] * 4_096))),
        "runs of one bucket": each(BYTES, sketched(600, *(run(2 * n, 1) for n in range(600)))),
        "4,096 full buckets": each(BYTES, sketched(4_096, run(-2048, *[1] * 4_096))),
        "4,096 buckets of eight bytes": each(BYTES, sketched(4_096 << 48, run(-2048, *[1 << 48] * 4_096, width=8))),
        "another count": each(BYTES, sketched(3, *far)),
        "5,000 buckets": each(BYTES, sketched(2, run(0, 1), run(4_999, 1))),
        "runs in falling order": each(BYTES, sketched(2, far[1], far[0])),
        "counts that are no base64": each(BYTES, sketched(1, '{"offset":0,"counts":"?"}')),
        "zeros": each(BYTES, sketched(9, more=',"zero_count":9')),
        **{f"scale {scale}": each(BYTES, sketched(1, run(0, 1), scale=scale)) for scale in (-10, -1, 0, 3, 20, 21)},
    }.items():
        rows = [(b"h", snapshot(items))]
        yield input_of("sketch", name, rows)
        if name in {"two values in 4,096 buckets", "the same in both signs", "scale 20"}:
            again = [one.replace('"offset":-2048', '"offset":-2047', 1) for one in items]
            yield input_of("sketch", f"{name}: the next values", [(b"h", snapshot(again, seq=2))], rows)
            lives = [(b"h", snapshot(items[::32], n)) for n in range(1, 32)]
            yield input_of("sketch", f"{name}: 32 lives", lives, rows)


def lives() -> Iterator[Input]:
    """Yield many small snapshots: lives, parts, apps and instances. The instance has a thousand lives already."""
    one = [metric("counter", "n")]
    numbers = range(1_000)
    kinds = {"living": {}, "final": {"final": "true"}, "incomplete": {"complete": "false", "prev": f"{NOW_MS}"}}
    for name, header in kinds.items():
        seq = {"seq": str((NOW_MS - 10_000_000) * 1_000_000)} if name == "incomplete" else {}
        before = [(b"h", snapshot(one, n, **header, **seq)) for n in numbers]
        new = [(b"h", snapshot(one, n, **header, **seq)) for n in range(1_000, 1_300)]
        yield input_of("snapshot", f"new lives, {name}, of one instance", new, before)
        yield input_of(
            "snapshot",
            f"new lives, {name}, each with its own metric",
            [(b"h", snapshot([metric("counter", f"n{n}")], n, **header, **seq)) for n in range(1_000, 1_300)],
            before,
        )
        yield input_of(
            "snapshot",
            f"one life of a thousand, {name}",
            [
                (b"h", snapshot([metric("counter", "n", n)], 999, **header | {"seq": str(NOW_MS * 1_000_000 + n)}))
                for n in range(300)
            ],
            before,
        )
        yield input_of("tombstone", f"a thousand empty lives, {name}", [(b"h", None)] * 400, [*before, (b"h", None)])
        yield input_of(
            "tombstone",
            f"a thousand lives, {name}, and a snapshot after each",
            [
                row
                for n in range(200)
                for row in ((b"h", None), (b"h", snapshot(one, n, **header | {"seq": str(NOW_MS * 1_000_000 + n)})))
            ],
            before,
        )
        yield input_of("forget", f"lives that are not there, {name}", [(b"h", b'{"forget":{"app":"z"}}')] * 400, before)
    yield input_of("snapshot", "a new instance each", [(b"h%d" % n, snapshot(one, n)) for n in range(300)])
    yield input_of("snapshot", "a new app each", [(b"h", snapshot(one, n, app=f'"a{n}"')) for n in range(300)])
    yield input_of(
        "snapshot", "a new part each", [(b"h", snapshot([metric("counter", f"n{n}")], part=str(n))) for n in range(300)]
    )
    yield input_of("snapshot", "lives without metrics", [(b"h", snapshot([], n)) for n in range(400)])
    yield input_of("snapshot", "stale", [(b"h", snapshot(one))] * 400, [(b"h", snapshot(one, seq=9))])
    yield input_of("snapshot", "too late", [(b"h", snapshot(one, prev="1"))] * 400)
    large = [metric("counter", f"n{n}") for n in range(9_000)]
    small = [(b"h", snapshot([metric("counter", f"z{n}")], part="1", seq=str(n + 1))) for n in range(300)]
    yield input_of("snapshot", "a small part of a large life", small, [(b"h", snapshot(large))])


def short_forms() -> Iterator[Input]:
    """Yield records of the short form: new names, restarts, tags, numbers that do not fit."""
    tags = ",".join(f'"{n:02}":"{"v" * 100}"' for n in range(32))
    for name, rows in {
        "a new name each": [f'{{"name":"n{n}","value":1}}' for n in range(2_000)],
        "one name": ['{"name":"n","value":1}'] * 2_000,
        "falling values": [f'{{"name":"n","value":{9_000 - n}}}' for n in range(2_000)],
        "sums beyond 64 bits": [f'{{"name":"n","value":{2**63 - 1 - n % 2}}}' for n in range(1_500)],
        "many tags": [f'{{"name":"n{n}","value":1,"tags":{{{tags}}}}}' for n in range(18)],
        "escapes": [rf'{{"name":"\u006e{n}","value":1}}' for n in range(1_800)],
        "unknown fields": [f'{{"name":"n","value":1,"x":{"[" * 60}{"]" * 60}}}' for n in range(400)],
    }.items():
        yield input_of("short form", name, [(b"s", row.encode()) for row in rows])
    yield input_of("short form", "a new instance each", [(b"s%d" % n, b'{"name":"n","value":1}') for n in range(2_000)])


def forgets() -> Iterator[Input]:
    """Yield forget records of metrics, in a table with 2,000 metrics in 500 lives, and clock records."""
    names = [metric("counter", f"n{n}", more=f',"tags":{{"t":"{n}"}}') for n in range(2_000)]
    same = [metric("counter", "n", more=f',"tags":{{"t":"{n}"}}') for n in range(2_000)]
    before = [(b"h%d" % n, snapshot(names[n * 4 : n * 4 + 4], n)) for n in range(500)] + [(b"o", snapshot(same, 501))]
    for name, what in {
        "no such metric": '{"metric":"none"}',
        "no such app": '{"metric":"n","app":"z"}',
        "no such tag": '{"metric":"n","tags":{"t":"none"}}',
        "no such two tags": '{"metric":"n","tags":{"t":"7","u":"none"}}',
        "a metric of one life": '{"metric":"n7"}',
        "for other shards": '{"metric":"n7","shards":2}',
        "invalid": '{"metric":""}',
    }.items():
        yield input_of("forget", name, [(b"evil", b'{"forget":%s}' % what.encode())] * 800, before)
    pair = [(b"h1", snapshot(names[4:8], 1, seq=str(n))) for n in range(2, 100)]
    yield input_of(
        "forget",
        "a metric that returns each time",
        [row for one in pair for row in (one, (b"evil", b'{"forget":{"metric":"n4"}}'))],
        before,
    )
    yield input_of("clock", "valid", [(CLOCK_KEY, clock_value(NOW_MS))] * 1_000, before)
    yield input_of("clock", "invalid", [(CLOCK_KEY, b"{}")] * 1_000, before)


def unreadable() -> Iterator[Input]:
    """Yield records that can't be read."""
    half = BYTES // 2
    for name, value in {
        "nested lists": b"[" * half + b"]" * half,
        "nested objects": b'{"a":' * (BYTES // 6) + b"1" + b"}" * (BYTES // 6),
        "brackets in a text": b'{"name":"' + b"[" * 500 + b'","value":1,"x":"' + b"[{" * half + b'"}',
        "a long number": b'{"name":"n","value":' + b"9" * BYTES + b"}",
        "many long numbers": b'{"name":"n","value":[' + b",".join([b"9" * 4_300] * 14) + b"]}",
        "invalid UTF-8": b"\xff" * BYTES,
        "invalid UTF-8 at the end": b'{"name":"' + b"n" * BYTES + b"\xff",
        "a truncated snapshot": snapshot(each(BYTES, metric("counter", "%x")))[:-2],
        "a truncated escape": b'{"name":"' + rb"\u006" * (BYTES // 6),
        "surrogates": b'{"name":"' + rb"\ud800" * (BYTES // 6) + b'","value":1}',
        "backslashes": b'{"name":"' + b"\\\\" * half + b'","value":1}',
        "unknown fields": b'{"metrics":[],' + b",".join(b'"x%d":0' % n for n in range(BYTES // 9)) + b"}",
        "spaces": b" " * BYTES,
    }.items():
        yield input_of("unreadable", name, [(b"h", value)])
    yield input_of("unreadable", "long keys", [(b"k" * 2_000, b"{}")] * 32)
    yield input_of("unreadable", "no keys", [(None, b"{}")] * 2_000)
    yield input_of("unreadable", "empty values", [(b"h", b"")] * 2_000)
    yield input_of("unreadable", "records above the size", [(b"h", b"x" * 1_048_577)])


def inputs() -> Iterator[Input]:
    """Yield all of them, after two usual records to compare with."""
    usual = [metric("counter", f"orders.processed.{n}", 12_345) for n in range(900)]
    yield input_of("snapshot", "usual: 900 counters", [(b"h", snapshot(usual))])
    usual = [sketched(20, run(-20, *[1] * 20)).replace("%x", f"h.{n}") for n in range(400)]
    yield input_of("snapshot", "usual: 400 histograms", [(b"h", snapshot(usual))])
    for make in (types, metrics, sketches, lives, short_forms, forgets, unreadable):
        yield from make()
