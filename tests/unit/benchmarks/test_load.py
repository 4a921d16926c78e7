"""The benchmark's load: the same updates for every side, in two forms, and the sums that must come out of them."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from benchmarks.aggregator.load import Fleet, Snapshots, Updates, singles
from support.steps import run
from tallystream.metrics.sketch import Sketch
from tallystream.record import Histogram, decode
from tallystream_aggregator.table import Record, State, Table

FLEET = Fleet(instances=7, metrics=5)


def table_sums(records: list[tuple[bytes, bytes]]) -> list[int]:
    """Return what the aggregator's own table makes of the records, in the order of the metrics' names."""
    changes = run(
        Table(State()),
        (Record("metrics", 0, offset, 1_700_000_000_000, key, value) for offset, (key, value) in enumerate(records)),
    )
    assert not changes.dead
    found = {total.metric[1]: json.loads(total.value())["count"] for total in changes.totals}
    return [found[name] for name in FLEET.names]


@pytest.mark.parametrize("n", [1, 35, 36, 103])
def test_single_metric_records_add_up_to_the_expected_sums(n: int) -> None:
    """Whatever their number, whole turns of the fleet or not: the table's sums are those of the generator."""
    updates = Updates(FLEET)
    records = list(singles(FLEET, updates.take(n), 1))
    assert len(records) == n
    expected = [total for total in updates.sums.tolist() if total]
    newest: dict[tuple[bytes, str], int] = {}
    for key, value in records:
        row = json.loads(value)
        assert row["value"] > newest.get((key, row["name"]), 0)
        newest[key, row["name"]] = row["value"]
    added: Counter[str] = Counter()
    for (_, name), value in newest.items():
        added[name] += value
    assert [added[name] for name in FLEET.names if name in added] == expected


def test_both_forms_say_the_same() -> None:
    """Snapshots and single-metric records of the same updates give the same sums in the aggregator's table."""
    for_singles, for_snapshots = Updates(FLEET), Updates(FLEET)
    ones = [record for taken in for_singles.pieces(105) for record in singles(FLEET, taken, 1)]
    snapshots = Snapshots(FLEET, 1_700_000_000_000)
    many = [record for taken in for_snapshots.pieces(105) for record in snapshots.render(taken)]
    assert (len(ones), len(many)) == (105, 21)
    assert table_sums(ones) == table_sums(many) == for_singles.sums.tolist() == for_snapshots.sums.tolist()


def test_histograms_carry_the_sketch_of_their_values() -> None:
    """The table takes each with its quantiles, so the sketch has `count` values; counts are the generator's."""
    fleet = Fleet(instances=7, metrics=5, histograms=2)
    updates = Updates(fleet)
    snapshots = Snapshots(fleet, 1_700_000_000_000)
    records = [record for taken in updates.pieces(3 * fleet.rows) for record in snapshots.render(taken)]
    assert table_sums(records) == updates.sums.tolist()
    metrics = decode(records[-1][1]).metrics
    assert [metric.type for metric in metrics] == ["counter"] * 3 + ["histogram"] * 2
    for histogram in metrics[3:]:
        assert isinstance(histogram, Histogram)
        assert histogram.sketch is not None
        assert Sketch.decode(histogram.sketch).count == histogram.count
        assert (histogram.min or 0) < histogram.sum / histogram.count < (histogram.max or 0)
