"""Histograms and timers as columns of a block: they are accepted and added up as one by one."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.fuzz import examples
from support.kept import require_as_new
from support.steps import BEGIN_MS, Topic, counter, gauge
from tallystream import record
from tallystream.metrics.sketch import MAX_BUCKETS, Sketch
from tallystream.ulid import new_ulid
from tallystream_aggregator import sums
from tallystream_aggregator.table import Record, State, Table
from tallystream_aggregator.table.arithmetic.distributions import Columns, Distributions, Replacements
from tallystream_aggregator.table.arithmetic.partial_sums import Contribution, PartialSum
from tallystream_aggregator.table.arithmetic.sketch_rows import Grids
from tallystream_aggregator.table.arithmetic.sketches import MergedSketch, checked_sketch
from tallystream_aggregator.table.arithmetic.values import stored_values
from tallystream_aggregator.table.records.decode import CLOCK_KEY, clock_value
from tallystream_aggregator.table.state import pack, unpack
from tallystream_aggregator.table.sum_tags import SumTags
from unit.aggregator.table.test_layouts import published

LIVES = [new_ulid(BEGIN_MS + number) for number in range(3)]
NAMES = ["h0", "h1", "h2"]
VALUES = st.one_of(
    st.floats(0.001, 0.01),
    st.floats(1e-12, 1e12),
    st.just(0.0),
    st.sampled_from([1.0] * 20 + [-1.0]),
)


def histogram(values: list[float], name: str = "h", kind: str = "histogram") -> dict[str, Any]:
    """Return a histogram of these values as a record has it."""
    sketch = Sketch()
    sketch.add(values)
    extremes = {"min": min(values), "max": max(values)} if values else {}
    encoded = msgspec.to_builtins(sketch.encode())
    return {"type": kind, "name": name, "count": len(values), "sum": math.fsum(values), "sketch": encoded} | extremes


def in_total(values: list[float]) -> tuple[int, record.Sketch | None]:
    """Return the count and the sketch that a sum of these values has."""
    sketch = Sketch(5 if any(values) else 0)
    sketch.add(values)
    return len(values), sketch.encode() if values else None


def found(total: sums.Sum) -> tuple[int, record.Sketch | None]:
    """Return the count and the sketch of a sum."""
    return total.count or 0, msgspec.json.decode(total.sketch, type=record.Sketch) if total.sketch else None


USUAL = [(life, "usual", [[1.0, 0.0], [2.0], [0.0, 3.0]]) for life in range(len(LIVES))]


@examples(25)
@example(steps=[USUAL, USUAL * 2, USUAL[:1]], many=1)
@given(
    steps=st.lists(
        st.lists(
            st.tuples(
                st.integers(0, len(LIVES) - 1),
                st.sampled_from(["usual"] * 8 + ["other order", "final", "without a sketch", "tombstone"]),
                st.lists(st.lists(VALUES, max_size=3), min_size=len(NAMES), max_size=len(NAMES)),
            ),
            max_size=6,
        ),
        min_size=1,
        max_size=4,
    ),
    many=st.sampled_from([1, 300]),
)
def test_sketches_of_many_lives_add_up_to_that_of_all_their_values(
    steps: list[list[tuple[int, str, list[list[float]]]]], many: int
) -> None:
    """Values far apart, zeros and negative ones, wider counts, lives that end, change their order or lose a sketch."""
    topic, seqs = Topic(), dict.fromkeys(range(len(LIVES)), 0)
    held: dict[int, list[list[float]]] = {life: [[] for _ in NAMES] for life in seqs}
    totals: dict[str, sums.Sum] = {}
    complete = True
    for step in steps:
        with topic.one_step():
            for life, how, more in step:
                key = f"app-{life}".encode()
                if how == "tombstone":
                    topic.append(key, None)
                    held[life] = [[] for _ in NAMES]
                    continue
                more[0] *= many  # some counts take two bytes
                held[life] = [old + new for old, new in zip(held[life], more, strict=True)]
                metrics: list[dict[str, Any]] = [counter(sum(map(len, held[life])))]
                metrics += [histogram(values, name) for name, values in zip(NAMES, held[life], strict=True)]
                if how == "other order":
                    metrics.reverse()
                if how == "without a sketch":
                    metrics[-1]["sketch"] = None
                seqs[life] += 1
                topic.snapshot(*metrics, key=key, life=LIVES[life], seq=seqs[life], final=how == "final")
                if how == "without a sketch" and held[life][-1]:
                    complete = False
        totals |= {total.metric[1]: sums.decode(total.value()) for total in topic.changes.totals}
    if not complete:  # a life may still lack a sketch
        seqs = {life: seq + 1 for life, seq in seqs.items()}
        with topic.one_step():
            for life, seq in seqs.items():
                metrics = [histogram(values, name) for name, values in zip(NAMES, held[life], strict=True)]
                topic.snapshot(*metrics, key=f"app-{life}".encode(), life=LIVES[life], seq=seq)
        totals |= {total.metric[1]: sums.decode(total.value()) for total in topic.changes.totals}
    for place, name in enumerate(NAMES):
        expected = in_total([value for life in held.values() for value in life[place]])
        assert (found(totals[name]) if name in totals else (0, None)) == expected


def runs(width: Literal[1, 2, 4, 8]) -> st.SearchStrategy[record.Buckets]:
    """Return runs of counts, of which some can't be read."""
    offsets = st.one_of(st.integers(-40, 40), st.sampled_from([-34_401, -34_400, 32_767, 32_768, -(2**31), 2**31 - 1]))
    counts = st.one_of(st.binary(max_size=24), st.binary(min_size=1, max_size=6).map(lambda one: one * width))
    return st.builds(record.Buckets, offset=offsets, width=st.just(width), counts=counts)


@st.composite
def histograms(draw: st.DrawFn) -> record.Histogram:
    """Return a histogram whose sketch may break each rule, and whose count may be another one."""
    of_width = st.sampled_from([1, 1, 1, 2, 4, 8]).flatmap(runs)  # type: ignore[arg-type]  # widths
    sketch = record.Sketch(
        scale=draw(st.sampled_from([5, 5, 5, 4, -10, 20])),
        zero_count=draw(st.sampled_from([0, 0, 0, 7])),
        positive=tuple(draw(st.lists(of_width, max_size=3))),
        negative=tuple(draw(st.lists(of_width, max_size=1))) if draw(st.integers(0, 9)) == 0 else (),
    )
    sizes = [
        (run.counts[at : at + run.width] for at in range(0, len(run.counts), run.width)) for run in sketch.positive
    ]
    values = sum(int.from_bytes(count, "little") for run in sizes for count in run)
    count = values + sketch.zero_count + draw(st.sampled_from([0, 0, 0, 1, 256]))
    return record.Histogram(name="h", count=count % 2**63, sketch=sketch)


def is_valid(metric: record.Histogram) -> bool:
    """Tell whether the sketch of a metric is accepted by itself."""
    try:
        return checked_sketch(metric) is not None
    except ValueError:
        return False


@examples(150)
@given(snapshots=st.lists(st.lists(histograms(), min_size=2, max_size=2), min_size=1, max_size=6))
def test_a_snapshot_has_a_row_only_if_each_of_its_sketches_is_valid(snapshots: list[list[record.Histogram]]) -> None:
    """Whatever came before: parts of counts, buckets that do not rise or are too many, and other counts have no row."""
    grids = Grids()
    for metrics in snapshots:
        if grids.row([metric.sketch for metric in metrics], [metric.count for metric in metrics]) is not None:
            assert all(map(is_valid, metrics))


@examples(50)
@given(
    offsets=st.lists(st.tuples(st.integers(-100, 100), st.integers(0, 3000)), min_size=2, max_size=8),
    width=st.sampled_from([1, 2, 4]),
)
def test_rows_of_sketches_add_up_to_the_counts_of_each(offsets: list[tuple[int, int]], width: Literal[1, 2, 4]) -> None:
    """Also if the ranges grow meanwhile, or a sketch has several runs."""
    grids, one_by_one, together = Grids(), MergedSketch(), MergedSketch()
    for first, gap in offsets:
        run = record.Buckets(offset=first, width=width, counts=b"\xff" * 8 * width)
        after = record.Buckets(offset=first + 8 + gap, width=width, counts=b"\x01" * 80 * width)
        sketch = record.Sketch(scale=5, positive=(run, after))
        row = grids.row([sketch])
        one_by_one.add((5, 1), sketch.positive)
        if row is None:
            together.add((5, 1), sketch.positive)
            continue
        grid, buckets, _ = row
        assert grids.of(grid.packed).packed == grid.packed
        ((begin, counts),) = grid.split(grid.counts(buckets))
        together.add_totals(5, begin, counts)
    assert together.total() is not None
    assert [side.runs() for side in together.not_empty().values()] == [
        side.runs() for side in one_by_one.not_empty().values()
    ]


def made(values: list[float], kind: str = "histogram") -> record.Histogram:
    """Return a histogram or timer of these values."""
    of = record.Timer if kind == "timer" else record.Histogram
    return msgspec.convert(histogram(values, kind=kind), of, strict=False)


DRAWN = [[0.1, 0.2, 0.0], [0.1] * 300 + [5.0], [0.001, 10.0], [0.1], [0.0], []]


@examples(50)
@given(drawn=st.lists(st.tuples(st.sampled_from(DRAWN), st.sampled_from(["histogram", "timer"])), min_size=1))
def test_columns_have_the_values_and_sketches_of_the_record(drawn: list[tuple[list[float], str]]) -> None:
    """The usual ones: with zeros, buckets left out, counts of several widths, few values beside many, or none yet."""
    metrics = [made(values, kind) for values, kind in drawn]
    columns = Columns([kind for _, kind in drawn])
    found = columns.read(metrics)
    if all(not values or not any(values) for values, _ in drawn):
        assert found is None  # no bucket tells the width of a row
        return
    assert found is not None
    for place, metric in enumerate(metrics):
        values, sketch = columns.values(found, place, metric.count), columns.sketch(found, place)
        rates = (0.0,) * 4 if metric.type == "timer" else ()
        assert values == (metric.count, metric.sum, metric.min, metric.max, *rates)
        assert sketch == metric.sketch


KINDS = ["histogram", "timer"]
MORE = st.tuples(st.floats(0.01, 100), st.integers(0, 2))  # a value, and zeros
CHANGES = st.tuples(st.integers(0, 2), MORE, MORE, st.sampled_from(["living", "living", "silent", "apply"]))


@examples(100)
@given(changes=st.lists(CHANGES, min_size=1, max_size=12))
def test_distributions_that_are_replaced_together_add_up_as_one_by_one(
    changes: list[tuple[int, tuple[float, int], tuple[float, int], str]],
) -> None:
    """The ranges of their sketches grow meanwhile. Lives fall silent and return, which changes their rates."""
    columns, held = Columns(KINDS), dict[int, tuple[Distributions, list[Contribution]]]()
    together, one_by_one = ([PartialSum(kind) for kind in KINDS] for _ in range(2))
    replacements, values = Replacements(columns), {life: ([1.0], [1.0]) for life, *_ in changes}
    for life, *more, what in changes:
        metrics = []
        for kind, of, (value, zeros) in zip(KINDS, values[life], more, strict=True):
            of += [value, *[0.0] * zeros]
            rate = {"m1_rate": value} if kind == "timer" else {}
            metrics.append(msgspec.structs.replace(made(of, kind), **rate))
        new = columns.read(metrics)
        assert new is not None
        old, before = held.get(life, (None, [None, None]))
        if old is not None and not before[0].current:
            replacements.set_living(old, living=True)
        replacements.replace(old, new, living=True)
        if what == "silent":
            replacements.set_living(new, living=False)
        after = [Contribution(stored_values(one), what != "silent", one.sketch) for one in metrics]
        for partial, *both in zip(one_by_one, before, after, strict=True):
            partial.replace(*both)
        held[life] = new, after
        if what == "apply":
            replacements.apply(together)
            replacements = Replacements(columns)
    replacements.apply(together)
    for partial, expected in zip(together, one_by_one, strict=True):
        *_, (_, *cells), sketch = partial.stored()
        *_, (_, *expected_cells), expected_sketch = expected.stored()
        assert (cells, sketch) == (expected_cells, expected_sketch)


def test_snapshots_share_a_grid_until_their_values_leave_it() -> None:
    """Otherwise each snapshot would keep the ranges of its sketches."""
    grids, found = Grids(), []
    for values in ([1.0], [1.0, 1.1], [1.1] * 9, [1.0, 9.0], [1.0]):
        row = grids.row([made(values).sketch])
        assert row is not None
        found.append(row[0])
    assert [grid is found[0] for grid in found] == [True, True, True, False, False]
    assert found[-1] is found[-2]


def test_lives_share_what_their_snapshots_have_in_common() -> None:
    """The list of metrics and the ranges of sketches are kept once, also in a table that was loaded."""
    topic = Topic()
    for number, life in enumerate(LIVES):
        for seq in (1, 2, 3):
            metrics = [counter(seq, "a"), counter(seq, "b"), histogram([1.0] * seq)]
            topic.snapshot(*metrics, key=f"app-{number}".encode(), life=life, seq=seq)
    for table in (topic.table, Table(unpack(pack(topic.table.state)))):
        blocks = [life.blocks[0] for lives in table.state.lives.values() for life in lives.values()]
        assert len(blocks) == len(LIVES)
        assert len({id(block.metrics) for block in blocks}) == 1
        assert len({id(block.distributions.grid) for block in blocks if block.distributions}) == 1


def test_few_grids_are_kept() -> None:
    """Snapshots may have any scale, and counts of any width."""
    grids = Grids()
    for scale in range(20):
        run = record.Buckets(offset=0, width=1, counts=b"\x01" * 300)
        assert grids.row([record.Sketch(scale=scale, positive=(run,))]) is not None
        assert len(grids._newest) <= 4
        assert len(grids._known) <= 4


def test_a_row_takes_no_memory_for_buckets_far_apart() -> None:
    """A sketch that spans thousands of buckets with a few values is added up by itself."""
    assert Grids().row([made([1.0, 2.0 ** (MAX_BUCKETS / 32 - 2)]).sketch]) is None


@pytest.mark.parametrize(("width", "number", "fits"), [(4, 100, True), (8, 100, False), (1, MAX_BUCKETS + 1, False)])
def test_a_row_has_no_counts_of_eight_bytes_and_no_more_buckets_than_a_sketch_may_have(
    width: Literal[1, 4, 8], number: int, fits: bool
) -> None:
    """Their sums could exceed 64 bits, and such a sketch is refused by itself."""
    run = record.Buckets(offset=0, width=width, counts=(1).to_bytes(width, "little") * number)
    assert (Grids().row([record.Sketch(scale=5, positive=(run,))]) is not None) == fits


LATENCIES = st.one_of(st.floats(1e-3, 1e3), st.sampled_from([0.0, 0.25, 4.0]))
STEPS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from([b"app-1", b"app-2", b"app-3"]),
            st.sampled_from(["usual"] * 12 + ["final", "silence", "tombstone", "other life", "whole number", "lower"]),
            st.lists(LATENCIES, max_size=3),
            st.lists(LATENCIES, max_size=3),
        ),
        max_size=8,
    ),
    min_size=1,
    max_size=5,
)


@examples(60)
@given(steps=STEPS, tags=st.sampled_from([SumTags(), SumTags(drop=("pod",))]))
def test_columns_change_nothing_that_is_published(
    steps: list[list[tuple[bytes, str, list[float], list[float]]]], tags: SumTags
) -> None:
    """Sums, rows, events and dead letters are those of a table without blocks, also after it is stored and read."""
    with_columns, with_rows = Table(State(sum_tags=tags)), Table(State(sum_tags=tags))
    held: dict[tuple[bytes, int], tuple[list[float], list[float]]] = {}
    lives, clock_ms, offset = Counter[bytes](), BEGIN_MS, 0
    for step in steps:
        records = []
        for key, how, *more in step:
            offset, clock_ms, value = offset + 1, clock_ms + (60_000 if how == "silence" else 100), None
            if how not in {"silence", "tombstone"}:
                lives[key] = (lives[key] + (how == "other life")) % len(LIVES)
                values = held.setdefault((key, lives[key]), ([1.0], [2.0]))
                values[0].extend(more[0])
                values[1].extend(more[1])
                value = json.dumps(snapshot(values, key, LIVES[lives[key]], how, offset)).encode()
            of = (CLOCK_KEY, clock_value(clock_ms)) if how == "silence" else (key, value)
            records.append(Record("metrics", 0, offset, clock_ms, *of, clock_ms))
        assert written(with_columns, records, as_rows=False) == written(with_rows, records, as_rows=True)
        assert with_columns._rows.size._used == with_rows._rows.size._used
        require_as_new(with_columns)
        with_columns = Table(unpack(pack(with_columns.state)))
        assert with_columns._rows.size._used == with_rows._rows.size._used
    for table in (with_columns, with_rows):
        table.publish_all()
    assert written(with_columns, [], as_rows=False) == written(with_rows, [], as_rows=True)


def written(table: Table, records: list[Record], *, as_rows: bool) -> list[object]:
    """Return what is published of a step (`published`), with the sums as bytes."""
    changes, rows = published(table, records, as_rows=as_rows)
    totals = [(total.key(), total.value()) for total in changes.totals]
    return [totals, changes._replace(totals=[]), rows]


def snapshot(held: tuple[list[float], list[float]], key: bytes, life: str, how: str, seq: int) -> dict[str, Any]:
    """Return a snapshot with two histograms and a timer of these values, and with others."""
    sizes, times = held
    pod = {"pod": key.decode()}
    distributions = [
        histogram(sizes, "size") | {"tags": pod},
        histogram(times, "time", "timer") | {"m1_rate": float(seq), "tags": pod},
        histogram(sizes[1:], "rest"),
    ]
    if how == "whole number":
        distributions[0]["sum"] = math.ceil(distributions[0]["sum"])
    if how == "lower":
        distributions[2]["count"] = 0
        distributions[2].pop("sketch")
    metrics = [counter(seq, "a"), gauge(seq, "g"), *distributions, counter(seq, "b")]
    header = {"app": "shop", "life": life, "part": 0, "ts": 0, "every_ms": 1000, "final": how == "final"}
    return header | {"prev": BEGIN_MS, "seq": seq, "metrics": metrics}
