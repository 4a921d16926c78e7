"""What the page reads from a real local store: the right period, the last known state, bounded lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tallystream.aggregator.sinks.base import Point
from tallystream.aggregator.sinks.stores import StoreSettings, open_reader, open_sink
from tallystream.dashboards.lag import GroupLag, partition_lag, points
from tallystream.dashboards.page.lines import MAX_POINTS, rate
from tallystream.dashboards.page.reading import MAX_LINES, read_lag, read_sums
from tallystream.dashboards.page.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tallystream.aggregator.sinks.base import PointReader, Sink

NOW = 1_700_000_000_000
MINUTE = 60_000


@pytest.fixture
def store(tmp_path: Path) -> StoreSettings:
    return StoreSettings.parse(f"local:{tmp_path / 'store.db'}", retention_days=0)


@pytest.fixture
def sink(store: StoreSettings) -> Iterator[Sink]:
    opened = open_sink(store)
    opened.setup()
    yield opened
    opened.close()


@pytest.fixture
def reader(store: StoreSettings, sink: Sink) -> Iterator[PointReader]:
    opened = open_reader(store)
    yield opened
    opened.close()


def counted(count: int, ts_ms: int, name: str = "records", app: str = "orders", type_: str = "counter") -> Point:
    return Point(name, {"app": app, "metric_type": type_}, {"count": count, "instances": 1, "lives": 1}, ts_ms)


def lag(ts_ms: int, group: str, records: int) -> list[Point]:
    return points([GroupLag(group, (partition_lag("t", 0, start=0, end=1000, committed=1000 - records),))], ts_ms)


def test_an_empty_store_is_empty(reader: PointReader) -> None:
    """No points: no apps, no groups, no time, and no error."""
    sums = read_sums(reader, Selection(), now_ms=NOW, until_ms=None)
    lags = read_lag(reader, Selection(), now_ms=NOW)
    assert (sums.apps, sums.app, sums.metric, sums.rows, sums.as_of_ms) == ((), None, None, (), None)
    assert (lags.groups, lags.drawn.lines, lags.as_of_ms) == ((), (), None)


def test_a_sum_that_has_not_changed_lately_is_still_seen(sink: Sink, reader: PointReader) -> None:
    """A sum older than the period is in the table, and drawn as far as the pipeline was known to be alive."""
    sink.write([counted(7, NOW - 90 * MINUTE)])
    view = read_sums(reader, Selection(range="15m"), now_ms=NOW, until_ms=NOW - 1000)
    assert [(row.value, row.changed_ms) for row in view.rows] == [(7, NOW - 90 * MINUTE)]
    (line,) = view.over_time.lines
    assert (line.times_ms, line.values) == ([NOW - 15 * MINUTE, NOW - 1000], [7, 7])
    assert rate(view.chosen[0].value, window_ms=MINUTE, at_ms=view.until_ms) == 0.0


def test_the_first_counter_is_shown_first(sink: Sink, reader: PointReader) -> None:
    """Nothing chosen: the first app and its first counter; what is chosen wins."""
    sink.write([counted(1, NOW, "a.time", type_="timer"), counted(2, NOW, "b"), counted(3, NOW, "c", app="z")])
    view = read_sums(reader, Selection(), now_ms=NOW, until_ms=None)
    assert (view.apps, view.app, view.names, view.metric) == (("orders", "z"), "orders", ("a.time", "b"), "b")
    chosen = read_sums(reader, Selection(app="z", metric="c"), now_ms=NOW, until_ms=None)
    assert [metric.value.last for metric in chosen.chosen] == [3]


def test_what_a_link_names_may_be_missing(sink: Sink, reader: PointReader) -> None:
    """A metric that the store does not have has no line; the rest of the page is there."""
    sink.write([counted(2, NOW, "b")])
    view = read_sums(reader, Selection(metric="later"), now_ms=NOW, until_ms=None)
    assert (view.metric, view.over_time.lines, len(view.rows)) == ("later", (), 1)


def test_charts_are_bounded(sink: Sink, reader: PointReader) -> None:
    """At most 1,000 points a line, the newest value among them, and at most 20 lines; the rest is counted."""
    sink.write([counted(number, NOW - 3000 + number) for number in range(3000)])
    view = read_sums(reader, Selection(), now_ms=NOW, until_ms=None)
    (line,) = view.over_time.lines
    assert (len(line.times_ms) <= MAX_POINTS, line.last) == (True, 2999)
    sink.write([point for number in range(30) for point in lag(NOW - 1, f"g{number:02}", number)])
    lags = read_lag(reader, Selection(), now_ms=NOW)
    assert [line.label for line in lags.drawn.lines] == [f"g{number}" for number in range(29, 9, -1)]
    assert (len(lags.drawn.lines), lags.drawn.left_out, len(lags.groups)) == (MAX_LINES, 10, 30)


def test_a_silent_collector_leaves_the_last_lag(sink: Sink, reader: PointReader) -> None:
    """Nothing in the period: the last rounds' lag is in the table with its time, and nothing is drawn."""
    sink.write(
        [*lag(NOW - 120 * MINUTE, "old", 5), *lag(NOW - 60 * MINUTE, "g", 70), *lag(NOW - 60 * MINUTE - 1, "g", 9)]
    )
    view = read_lag(reader, Selection(range="15m"), now_ms=NOW)
    assert [(row.group, row.lag) for row in view.groups] == [("g", 70)]
    assert (view.as_of_ms, view.drawn.lines) == (NOW - 60 * MINUTE, ())


def test_one_group_by_partition(sink: Sink, reader: PointReader) -> None:
    """A chosen group has a line and a row for each partition; the other groups stay in the list."""
    sink.write([*lag(NOW - 2, "a", 6), *lag(NOW - 1, "a", 5), *lag(NOW - 1, "b", 7)])
    view = read_lag(reader, Selection(group="a"), now_ms=NOW)
    assert [(line.label, line.values) for line in view.drawn.lines] == [("t/0", [6, 5])]
    assert [(row.partition, row.lag) for row in view.partitions] == [(0, 5)]
    assert [row.group for row in view.groups] == ["b", "a"]


def test_events_single_instances_and_the_system_itself_stand_back(sink: Sink, reader: PointReader) -> None:
    """Of the sums alone is read; the system's own figures are among them, and not what a visitor sees first."""
    event = Point("tallystream.events", {"app": "a", "kind": "restart"}, {"text": "restart: i"}, NOW)
    own = counted(1, NOW, "tallystream.batches", "tallystream")
    sink.write([counted(7, NOW, app="zebra"), counted(3, NOW, "instance:records", "a"), event, own])
    view = read_sums(reader, Selection(), now_ms=NOW, until_ms=None)
    assert (view.apps, view.app) == (("tallystream", "zebra"), "zebra")
    assert [row.value for row in view.rows] == [7]
    only = read_sums(reader, Selection(app="tallystream"), now_ms=NOW, until_ms=None)
    assert [row.value for row in only.rows] == [1]
