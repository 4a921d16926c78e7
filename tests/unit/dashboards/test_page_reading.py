"""What the page reads from a real local store: the right period, the last known state, bounded lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.lag import Rounds, group, round_of
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings, open_reader, open_sink
from tallystream_dashboards.page.data.lines import MAX_LINES, MAX_POINTS, rate
from tallystream_dashboards.page.data.read_lag import PARTITIONS, TRENDS, WORST, read_group_view, read_groups_view
from tallystream_dashboards.page.data.read_pipeline import read_pipeline
from tallystream_dashboards.page.data.read_sums import read_duplicates, read_sums
from tallystream_dashboards.page.url_state import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tallystream_aggregator.sinks.base import PointReader, Sink

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


def read_groups(reader: PointReader, *, minutes: int = 15) -> tuple[list[tuple[str, int | None]], int, int | None]:
    view = read_groups_view(reader, at_ms=NOW, range_s=minutes * 60)
    return [(one.group, one.lag) for one in view.states], len(view.drawn.lines), view.as_of_ms


def test_an_empty_store_is_empty(reader: PointReader) -> None:
    """No points: no apps, no groups, no time, and no error."""
    sums = read_sums(reader, Selection(), now_ms=NOW, until_ms=None)
    assert (sums.apps, sums.app, sums.metric, sums.rows, sums.as_of_ms) == ((), None, None, (), None)
    assert read_groups(reader) == ([], 0, None)
    assert read_group_view(reader, "g", at_ms=NOW, range_s=900).state is None


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
    """At most 1,000 points a line, the newest value among them; ten lines one by one, and the others as a band."""
    sink.write([counted(number, NOW - 3000 + number) for number in range(3000)])
    view = read_sums(reader, Selection(), now_ms=NOW, until_ms=None)
    (line,) = view.over_time.lines
    assert (len(line.times_ms) <= MAX_POINTS, line.last) == (True, 2999)
    sink.write(Rounds().points(round_of(*(group(f"g{n:02}", (0, n), topic=f"t{n}") for n in range(30))), NOW - 1))
    groups = read_groups_view(reader, at_ms=NOW, range_s=900)
    assert [line.label for line in groups.drawn.lines] == [f"g{number}" for number in range(29, 19, -1)]
    others = groups.drawn.others
    assert others is not None
    assert (len(groups.drawn.lines), others.count, groups.drawn.left_out) == (MAX_LINES, 20, 0)
    assert (others.lows[-1], others.highs[-1]) == (0, 19)


def test_a_silent_collector_leaves_the_last_lag(sink: Sink, reader: PointReader) -> None:
    """Nothing in the period: the last rounds' lag is in the table with its time, and nothing is drawn."""
    rounds = Rounds()
    sink.write(rounds.points(round_of(group("old", (95, 100))), NOW - 120 * MINUTE))
    sink.write(rounds.points(round_of(group("g", (30, 100))), NOW - 60 * MINUTE))
    assert read_groups(reader) == ([("old", 5), ("g", 70)], 0, NOW - 60 * MINUTE)


def test_one_group_by_partition(sink: Sink, reader: PointReader) -> None:
    """A chosen group has a line and a row for each partition, and lines of its age and its rates."""
    rounds = Rounds()
    for ago in range(60, 0, -1):
        sink.write(rounds.points(round_of(group("a", (0, 100 - ago), (3, 3))), NOW - ago * 1000))
    view = read_group_view(reader, "a", at_ms=NOW, range_s=900)
    assert view.state is not None
    assert [(one.name, one.lag) for one in view.state.partitions] == [("orders/0", 99), ("orders/1", 0)]
    assert {line.label: line.last for line in view.by_partition.lines} == {"orders/0": 99, "orders/1": 0}
    assert view.total.last == 99
    assert {line.label: line.last for line in view.rates.lines} == {"produced": 1.0, "consumed": 0.0}
    assert view.seconds.lines[0].last == pytest.approx(59, abs=1)


def test_thousands_of_groups_and_partitions_are_read_in_part(sink: Sink, reader: PointReader) -> None:
    """The table has all of them; lines are read and drawn of the worst only."""
    many = (group(f"g{number:04}", (0, number), topic=f"t{number}") for number in range(TRENDS + 1))
    wide = group("wide", *((0, number + 1000) for number in range(PARTITIONS + 30)), topic="wide")
    sink.write(Rounds().points(round_of(*many, wide), NOW - 1000))
    view = read_groups_view(reader, at_ms=NOW, range_s=900)
    assert (len(view.states), len(view.trends), view.states[0].group) == (TRENDS + 2, WORST, "wide")
    assert (len(view.drawn.lines), view.drawn.left_out) == (MAX_LINES, TRENDS + 2 - WORST)
    one = read_group_view(reader, "wide", at_ms=NOW, range_s=900)
    assert one.state is not None
    assert len(one.state.partitions) == PARTITIONS + 30
    assert (len(one.by_partition.lines), one.by_partition.left_out) == (MAX_LINES, PARTITIONS + 30 - MAX_LINES)
    assert one.by_partition.lines[0].label == f"wide/{PARTITIONS + 29}"


def test_the_pipeline_is_told_hop_by_hop(sink: Sink, reader: PointReader) -> None:
    """What instances report to, what the aggregator and the shipper have not read, the newest sum."""
    rounds = Rounds()
    for ago in range(60, 0, -2):
        came = min(100, 130 - ago)
        own = group("tallystream-aggregator", (came - 5, came), topic="metrics", members=0)
        shipper = group("tallystream-shipper", (7, 7), topic="metrics-agg", members=0)
        sink.write(rounds.points(round_of(own, shipper), NOW - ago * 1000))
    sink.write([counted(1, NOW - 4000)])
    view = read_groups_view(reader, at_ms=NOW, range_s=900)
    found_hops, delays = read_pipeline(reader, view, at_ms=NOW, range_s=900)
    assert [(hop.name, hop.delay) for hop in found_hops] == [
        ("instance → metrics", "30 s ago"),
        ("metrics → sums", "33 s"),
        ("sums → store", "0 s"),
        ("store → page", "4 s ago"),
    ]
    assert found_hops[1].detail.startswith("5 records behind. It keeps up. The lag is 5")
    assert [line.label for line in delays.lines] == ["metrics → sums", "sums → store"]


def covered(position: int, ts_ms: int, name: str, *, start: int = 0, partition: int = 0, app: str = "orders") -> Point:
    tags = {"app": app, "metric_type": "position", "topic": "t", "partition": str(partition)}
    return Point(name, tags, {"start": start, "position": position, "instances": 1, "lives": 1}, ts_ms)


def test_what_was_processed_twice_is_told_from_positions(sink: Sink, reader: PointReader) -> None:
    """Everything processed less the offsets covered; without positions nothing is said."""
    sink.write([counted(120, NOW - 2000, "done"), counted(125, NOW - 1000, "done")])
    view = read_sums(reader, Selection(view="twice", metric="done"), now_ms=NOW, until_ms=None)
    assert read_duplicates(reader, view, Selection(), now_ms=NOW) is None
    sink.write([covered(60, NOW - 3000, "done.position", start=10)])
    sink.write([covered(65, NOW - 3000, "done.position", partition=1)])
    view = read_sums(reader, Selection(view="twice", metric="done"), now_ms=NOW, until_ms=None)
    twice = read_duplicates(reader, view, Selection(), now_ms=NOW)
    assert twice is not None
    assert (twice.processed, twice.covered, twice.number) == (125, 115, 10)
    assert (twice.over_time.times_ms[-2:], twice.over_time.values[-2:]) == ([NOW - 2000, NOW - 1000], [5, 10])
    assert [(one.partition, one.count) for one in twice.partitions] == [("0", 50), ("1", 65)]


def test_only_the_positions_of_the_counter_itself_are_covered_by_it(sink: Sink, reader: PointReader) -> None:
    """Two consumers in one app, each with its own positions: neither counts the other's offsets, nor loose ones."""
    sink.write([counted(100, NOW, "paid"), covered(100, NOW, "paid.position")])
    sink.write([counted(53, NOW, "shipped"), covered(50, NOW, "shipped.position"), covered(7, NOW, "position")])
    for name, number in (("paid", 0), ("shipped", 3)):
        selection = Selection(view="twice", metric=name)
        view = read_sums(reader, selection, now_ms=NOW, until_ms=None)
        twice = read_duplicates(reader, view, selection, now_ms=NOW)
        assert twice is not None
        assert (twice.number, [one.count for one in twice.partitions]) == (number, [100 if name == "paid" else 50])


def test_processed_twice_opens_where_there_are_positions(sink: Sink, reader: PointReader) -> None:
    """Apps and counters without positions are no choice there, unless a link asks for one, or nobody has any."""
    sink.write([counted(1, NOW, "alone", app="a"), counted(2, NOW, "bare", app="z"), covered(1, NOW, "bare", app="z")])

    def opened(**selected: Any) -> tuple[Any, ...]:
        view = read_sums(reader, Selection(view="twice", **selected), now_ms=NOW, until_ms=None)
        return view.apps, view.app, view.names, view.metric

    assert opened() == (("a", "z"), "a", ("alone",), "alone")
    sink.write([counted(9, NOW, "sold", app="z"), covered(9, NOW, "sold.position", app="z")])
    assert opened() == (("z",), "z", ("sold",), "sold")
    assert opened(app="a", metric="alone", carried=True) == (("z",), "z", ("sold",), "sold")
    assert opened(app="z", metric="bare", carried=True) == (("z",), "z", ("sold",), "sold")
    assert opened(app="z", metric="sold", carried=True) == (("z",), "z", ("sold",), "sold")
    assert opened(app="a", metric="alone") == (("z",), "a", (), "alone")
    assert opened(app="z", metric="bare") == (("z",), "z", ("sold",), "bare")


def test_the_reporters_own_metrics_come_last(sink: Sink, reader: PointReader) -> None:
    """What an app measures is shown first, and what its reporter says of itself apart from it."""
    own = "tallystream.reporter.failures"
    sink.write(
        [counted(1, NOW, own), counted(2, NOW, "zebra"), counted(3, NOW, "zoo"), counted(4, NOW, own, app="with none")]
    )
    view = read_sums(reader, Selection(), now_ms=NOW, until_ms=None)
    assert (view.app, view.metric) == ("orders", "zebra")
    assert ([row.metric for row in view.rows], [row.metric for row in view.own_rows]) == (["zebra", "zoo"], [own])
    only = read_sums(reader, Selection(app="with none"), now_ms=NOW, until_ms=None)
    assert (only.metric, only.rows, [row.value for row in only.own_rows]) == (own, (), [4])


def test_instances_and_restarts_stand_beside_the_sum(sink: Sink, reader: PointReader) -> None:
    """A line for each living instance where the shipper writes rows, and the events of the app in the period."""
    sink.write([counted(30, NOW - 5000)])
    for instance, count in (("orders-1", 20), ("orders-2", 10)):
        tags = {"app": "orders", "metric_type": "counter", "instance": instance}
        sink.write([Point("instance:records", tags, {"count": count}, NOW - 5000)])
    for app in ("orders", "other"):
        event = {"app": app, "kind": "restart", "instance": f"{app}-1"}
        sink.write([Point("tallystream.events", event, {"text": f"restart: {app}-1"}, NOW - 7000)])
    view = read_sums(reader, Selection(), now_ms=NOW, until_ms=None)
    assert [(line.label, line.last) for line in view.by_instance.lines] == [("orders-1", 20), ("orders-2", 10)]
    assert [(event.ts_ms, event.kind, event.text) for event in view.events] == [
        (NOW - 7000, "restart", "restart: orders-1")
    ]


def row(ts_ms: int, life: str, **field: float) -> Point:
    type_ = "gauge" if "value" in field else "position" if "position" in field else "counter"
    tags = {"app": "orders", "metric_type": type_, "instance": "web"}
    return Point(f"instance:{type_}", tags, {**field, "life": life}, ts_ms)


def test_processes_that_share_an_instance_make_one_line_that_adds_them_up(sink: Sink, reader: PointReader) -> None:
    """Counts go on at a restart, gauges lose a life that fell silent, positions are the highest; nothing jumps."""
    sink.write([counted(1, NOW, "counter"), counted(1, NOW, "gauge", type_="gauge"), counted(1, NOW, "position")])
    counts = [("a", 100), ("b", 10), ("a", 110), ("b", 20), ("c", 1), ("b", 25)]
    for number, (life, count) in enumerate(counts):
        ts_ms = NOW - 400_000 + number * 1000
        sink.write([row(ts_ms, life, count=count), row(ts_ms, life, value=count / 2), row(ts_ms, life, position=count)])
    sink.write([row(NOW - 200_000, "c", value=2.0)])
    lines = {}
    for metric in ("counter", "gauge", "position"):
        view = read_sums(reader, Selection(metric=metric), now_ms=NOW, until_ms=None)
        ((label, values),) = [(line.label, line.values) for line in view.by_instance.lines]
        assert label == "web"
        lines[metric] = values
    assert lines["counter"][:6] == [100, 110, 120, 130, 131, 136]
    assert lines["gauge"][:7] == [50, 55, 60, 65, 65.5, 68, 2]
    assert lines["position"][:6] == [100, 100, 110, 110, 110, 110]


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


def test_the_past_knows_nothing_of_what_came_later(sink: Sink, reader: PointReader) -> None:
    """Now, clocks that are a little ahead are allowed for; at a moment of the past only what there was then counts."""
    rounds = Rounds()
    for ago_s, lag in ((2, 3), (0, 5), (-1, 9)):
        sink.write(rounds.points(round_of(group("g", (10, 10 + lag))), NOW - ago_s * 1000))
        sink.write([counted(lag, NOW - ago_s * 1000)])
    moment = Selection(at="2023-11-14T22:13:20")
    for selection, lag in ((moment, 5), (Selection(), 9)):
        ahead_ms = selection.ahead_ms
        groups = read_groups_view(reader, at_ms=NOW, range_s=900, ahead_ms=ahead_ms)
        one = read_group_view(reader, "g", at_ms=NOW, range_s=900, ahead_ms=ahead_ms)
        sums = read_sums(reader, selection, now_ms=NOW, until_ms=None)
        assert one.state is not None
        assert [groups.states[0].lag, groups.trends["g"].last, one.state.lag, one.by_partition.lines[0].last] == [
            lag
        ] * 4
        assert [row.value for row in sums.rows] == [lag]
    assert moment.at_ms == NOW


def test_what_has_not_changed_is_drawn_to_the_newest_round(sink: Sink, reader: PointReader) -> None:
    """A group whose lag stays the same has no point of every round; its line ends where the others do."""
    rounds = Rounds()
    for ago_s in range(20, -1, -2):
        sink.write(rounds.points(round_of(group("idle", (7, 7)), group("busy", (90 - ago_s, 100))), NOW - ago_s * 1000))
    view = read_groups_view(reader, at_ms=NOW, range_s=900)
    assert {line.label: line.times_ms[-1] for line in view.drawn.lines} == {"idle": NOW, "busy": NOW}


def test_charts_of_one_view_have_one_period(sink: Sink, reader: PointReader) -> None:
    """Whatever lines there are, the time axes cover the chosen period; a row from before it holds at its beginning."""
    sink.write([counted(30, NOW - 200_000), counted(40, NOW - 5000)])
    tags = {"app": "orders", "metric_type": "counter"}
    for instance, ages_s in {"orders-1": (400, 100), "orders-2": (150,), "ended": (900,)}.items():
        for age_s in ages_s:
            row = tags | {"instance": instance}
            sink.write([Point("instance:records", row, {"count": 1000 - age_s}, NOW - age_s * 1000)])
    view = read_sums(reader, Selection(range="5m"), now_ms=NOW, until_ms=None)
    period = (NOW - 5 * MINUTE, NOW)
    assert [chart.period_ms for chart in (view.over_time, view.instances, view.by_instance)] == [period] * 3
    lines = {line.label: (line.times_ms, line.values) for line in view.by_instance.lines}
    assert lines == {
        "orders-1": ([NOW - 5 * MINUTE, NOW - 100_000], [600, 900]),
        "orders-2": ([NOW - 150_000], [850]),
    }
    sink.write(Rounds().points(round_of(group("g", (30, 100))), NOW - 1000))
    one = read_group_view(reader, "g", at_ms=NOW, range_s=300)
    assert [chart.period_ms for chart in (one.by_partition, one.rates, one.seconds)] == [period] * 3
