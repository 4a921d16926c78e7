"""Points whose start time is their own time: what they count is a baseline ("unknown start time" in the data model)."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from support.fuzz import examples
from support.otlp import BEGIN_NS, CUMULATIVE, SECOND_NS, TOPIC, attributes, counter, encode, number, resource_metrics
from support.steps import publish, run
from tallystream_aggregator.sums import VALUES
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.restore import LatestRows, restore
from tallystream_aggregator.table.state import pack, unpack
from tallystream_aggregator.table.sum_tags import SumTags
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.published import parse, unequal
from tallystream_aggregator.verify.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Callable

APPEND_MS = BEGIN_NS // 1_000_000 + 60_000
SCRAPED = {"service__name": "shop", "service__instance__id": "target:80"}
SETTINGS = TableSettings(otlp_topics=(TOPIC,))


def ns(second: float) -> int:
    return BEGIN_NS + int(second * SECOND_NS)


def record(*metrics: pb.Metric, **resource: Any) -> bytes:
    return encode(resource_metrics(metrics, **(SCRAPED | resource)))


def at(value: float, start: float, time: float) -> bytes:
    """Return a record with a counter, as the Collector scraped it at this second."""
    return record(counter("requests", number(value, ns(start), ns(time))))


def sums_of(table: Table) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the fields of all sums of a table, by type and name."""
    table.publish_all()
    fields = (*VALUES, "bounds", "counts")
    return {
        (total.type, total.name): {name: value for name in fields if (value := getattr(total, name)) not in (None, [])}
        for total in publish(table).totals
    }


def summed(*values: bytes, partitions: int = 1) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the sums of records. They are those of verify, and those of a table that is made again from the rows."""
    records = [Record(TOPIC, n % partitions, n, APPEND_MS, None, value) for n, value in enumerate(values)]
    table, latest = Table(State(), SETTINGS), LatestRows()
    for row in run(table, records).rows:
        latest.add(row.key, row.value())
    replay = Replay(Settings(otlp_topics=(TOPIC,)))
    for one in sorted(records, key=lambda one: one.partition):
        replay.apply(one.partition_name, one.timestamp_ms, one.key, one.value)
    table.publish_all()
    totals = table.outputs().totals
    replayed = replay.sums()
    assert len(totals) == len(replayed)
    for total in totals:
        published = parse(total.key(), total.value())
        assert not unequal(published.fields, replayed[published.identity])
    [state] = restore(latest).states
    found = sums_of(table)
    assert sums_of(Table(state, SETTINGS)) == found
    return found


def test_a_collector_that_scrapes_and_restarts_counts_nothing_twice() -> None:
    """The processor metric_start_time begins a new stream at the first scrape after the restart, at the target's count.

    What was counted before the first Collector, and while there was none, is in no stream.
    """
    began = [at(0, 0, 0), at(1000, 0, 10), at(1010, 0, 20)]
    restarted = [at(1010, 30, 30), at(1015, 30, 40)]
    assert summed(*began, *restarted) == {("counter", "requests"): {"count": 1015}}
    assert summed(at(1000, 10, 10), at(1010, 10, 20), *restarted) == {("counter", "requests"): {"count": 15}}
    assert summed(at(1010.5, 30, 30), at(1015.5, 30, 40)) == {("float_counter", "requests"): {"sum": 5.0}}


def test_a_target_that_restarts_is_counted_from_0() -> None:
    """The processor gives the first point after a count that fell a start time of a millisecond before its time."""
    assert summed(at(1000, 0, 0), at(1010, 0, 10), at(3, 19.999, 20), at(5, 19.999, 30)) == {
        ("counter", "requests"): {"count": 15}
    }


def test_the_points_of_an_sdk_count_though_their_start_is_their_own_time() -> None:
    """That for JavaScript gives an observable counter the time of its first collection as the start time."""
    metric = counter("requests", number(7, ns(0), ns(0)))
    assert summed(record(metric, telemetry__sdk__language="nodejs")) == {("counter", "requests"): {"count": 7}}
    assert summed(record(metric)) == {("counter", "requests"): {"count": 0}}


def distributions(count: int, start: float, time: float, low: int = 0) -> bytes:
    """Return a record with a distribution of each kind that has so many values of 2, or no sum if they are odd.

    In the explicit buckets, `low` of them are in the first bucket.
    """
    times = {"start_time_unix_nano": ns(start), "time_unix_nano": ns(time), "count": count}
    given_sum = {"sum": 2.0 * count} if count % 2 == 0 else {}
    extremes = {"min": 2.0, "max": 2.0}
    explicit = pb.HistogramDataPoint(
        explicit_bounds=[1.0, 3.0], bucket_counts=[low, count - low, 0], **times, **given_sum, **extremes
    )
    exponential = pb.ExponentialHistogramDataPoint(scale=0, **times, **given_sum, **extremes)
    exponential.positive.bucket_counts.append(count)
    summary = pb.SummaryDataPoint(sum=2.0 * count, **times)
    return record(
        pb.Metric(name="e", histogram=pb.Histogram(data_points=[explicit], aggregation_temporality=CUMULATIVE)),
        pb.Metric(
            name="x",
            exponential_histogram=pb.ExponentialHistogram(
                data_points=[exponential], aggregation_temporality=CUMULATIVE
            ),
        ),
        pb.Metric(name="s", summary=pb.Summary(data_points=[summary])),
    )


def test_distributions_have_baselines() -> None:
    """Counts, sums and buckets are those since the baseline. There are no quantiles: they would be of all values."""
    found = summed(distributions(10, 30, 30), distributions(14, 30, 40))
    counted = {"count": 4, "sum": 8.0}
    assert found["histogram", "e"] == found["histogram", "x"] == counted | {"min": 2.0, "max": 2.0}
    assert found["histogram", "s"] == counted
    assert found["buckets", "e"] == {"count": 4, "bounds": [1.0, 3.0], "counts": [0, 4, 0]}
    assert "sum" not in summed(distributions(11, 30, 30), distributions(14, 30, 40))["histogram", "e"]
    nothing = summed(distributions(11, 30, 30))
    assert nothing["histogram", "e"] == nothing["histogram", "x"] == {"count": 0, "sum": 0.0}
    assert nothing["buckets", "e"] == {"count": 0}
    fallen = summed(distributions(10, 30, 30, low=2), distributions(14, 30, 40, low=1))
    assert fallen["buckets", "e"] == {"count": 4}, "one bucket has less than before the stream began"


def stored(table: Table) -> Table:
    """Return the table as it is loaded."""
    return Table(unpack(pack(table.state)), SETTINGS)


def from_rows(table: Table) -> Table:
    """Return the table as it is made again from its rows."""
    table.publish_all()
    latest = LatestRows()
    for row in table.rows():
        latest.add(row.key, row.value())
    return Table(restore(latest).states[0], SETTINGS)


@pytest.mark.parametrize("again", [lambda table: table, stored, from_rows])
def test_a_count_below_its_baseline_counts_nothing(again: Callable[[Table], Table]) -> None:
    """A tombstone removes the counts, not the baselines. The next points of the stream may have any count."""
    table = Table(State(), SETTINGS)
    values = [(b"target:80", value) for value in (at(1000, 10, 10), at(1010, 10, 20), None)]
    run(table, [Record(TOPIC, 0, n, APPEND_MS, *one) for n, one in enumerate(values)])
    for second, value, counted in ((30, 500, 0), (31, 600, 0), (32, 1020, 20), (33, 1021, 21)):
        run(table, [Record(TOPIC, 0, second, APPEND_MS, None, at(value, 10, second))])
        table = again(table)
        assert sums_of(table) == {("counter", "requests"): {"count": counted}}


@pytest.mark.parametrize("sum_tags", [SumTags(), SumTags(drop=("pod",))])
@pytest.mark.parametrize("again", [lambda table: table, stored, from_rows])
def test_a_metric_with_nothing_but_a_baseline_is_dropped_with_its_life(
    sum_tags: SumTags, again: Callable[[Table], Table]
) -> None:
    """Until then it keeps its number."""
    table = Table(State(sum_tags=sum_tags), SETTINGS)
    values = [(b"target:80", value) for value in (at(1000, 10, 10), None)]
    run(table, [Record(TOPIC, 0, n, APPEND_MS, *one) for n, one in enumerate(values)])
    table = again(table)
    assert len(table.state.metrics) == 1
    run(table, [Record(TOPIC, 0, 2, APPEND_MS + SETTINGS.forget_after_ms + 1, b"x", None)])
    assert not table.state.metrics


@examples(60)
@given(st.integers(0, 2**63), st.sampled_from([1, 2]))
def test_the_order_of_the_records_makes_no_difference(seed: int, partitions: int) -> None:
    """Streams with and without a baseline, divided and repeated, in any order over the partitions, and contradictions.

    The points of one stream and time may have two values: then the higher one is that of the baseline, too.
    """
    chance = random.Random(seed)
    values = []
    for _ in range(chance.randint(1, 8)):
        start = chance.choice([0, 10, 20])
        metrics = [
            counter(
                chance.choice("ab"),
                number(
                    chance.choice([0, 1, 5, 7.5]), ns(start), ns(time), attributes=attributes(k=chance.choice("xy"))
                ),
            )
            for time in chance.sample([start, start + 1, start + 2], chance.randint(1, 3))
        ]
        values.append(record(*metrics, **chance.choice([{}, {}, {"telemetry__sdk__language": "nodejs"}])))
    wanted = summed(*values, partitions=partitions)
    chance.shuffle(values)
    assert summed(*values, partitions=partitions) == wanted
