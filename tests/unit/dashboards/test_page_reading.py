"""The data of the page's views, read from a local store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from support.lag import Rounds, group, round_of
from support.stores import Points
from tallystream_aggregator.sinks.base import Point, Series
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_dashboards.data import sums
from tallystream_dashboards.data.bounds import Bounds
from tallystream_dashboards.data.groups import (
    MAX_GROUPS,
    MAX_PARTITIONS,
    WORST_GROUPS,
    GroupsView,
    GroupView,
    read_group_view,
    read_groups_now,
    read_groups_view,
)
from tallystream_dashboards.data.home import Home
from tallystream_dashboards.data.lines import MAX_LINES, MAX_POINTS, Period, rate
from tallystream_dashboards.formatting import DASH
from tallystream_dashboards.lag.storage import GROUP_FIELDS, GROUPS, LAG
from tallystream_dashboards.page.compare_data import over_time, read_compare
from tallystream_dashboards.page.metrics_data import MetricsView, read_metrics
from tallystream_dashboards.page.reading import read_page
from tallystream_dashboards.page.url_state import Selection

NOW = 1_700_000_000_000
MINUTE = 60_000
PERIOD = Selection().period(NOW)
"""The default period: 15 minutes up to now."""


def counted(count: int, ts_ms: int, name: str = "records", app: str = "orders", type_: str = "counter") -> Point:
    return Point(name, {"app": app, "metric_type": type_}, {"count": count, "instances": 1, "lives": 1}, ts_ms)


def read_groups(reader: LocalStore) -> tuple[list[tuple[str, int | None]], int, int | None]:
    now = read_groups_now(reader, PERIOD)
    return [(one.group, one.lag) for one in now.states], len(groups_view(reader).chart.lines), now.round_ms


def groups_view(reader: LocalStore, period: Period = PERIOD) -> GroupsView:
    return read_groups_view(reader, read_groups_now(reader, period), period)


def test_a_sum_that_has_not_changed_for_long_is_shown(store: LocalStore, reader: LocalStore) -> None:
    """A sum older than the period is in the table, and is drawn up to the collector's newest round."""
    store.write([counted(7, NOW - 90 * MINUTE)])
    view = read_metrics(reader, Selection(), PERIOD, round_ms=NOW - 1000)
    assert [(row.value.last, row.changed_ms) for row in view.metrics] == [(7, NOW - 90 * MINUTE)]
    (line,) = view.over_time.lines
    assert (line.times_ms, line.values) == ([NOW - 15 * MINUTE, NOW - 1000], [7, 7])
    assert rate(view.chosen[0].value, window_ms=MINUTE, at_ms=view.until_ms) == 0.0


def test_metrics_of_two_types_are_two_lines(store: LocalStore, reader: LocalStore) -> None:
    """Metrics of one name and the same tags have lines of their own, labelled by type, not one that zigzags."""
    store.write([counted(3, NOW - 1000), counted(900, NOW - 500, type_="histogram")])
    view = read_metrics(reader, Selection(metric="records"), PERIOD, round_ms=NOW)
    for chart in (view.over_time, view.instances):
        assert sorted(line.label for line in chart.lines) == ["records (counter)", "records (histogram)"]


def test_charts_are_bounded(store: LocalStore, reader: LocalStore) -> None:
    """A line has at most 1,000 points, with the newest value. Ten lines are drawn."""
    store.write([counted(number, NOW - 3000 + number) for number in range(3000)])
    view = read_metrics(reader, Selection(), PERIOD, round_ms=None)
    (line,) = view.over_time.lines
    assert (len(line.times_ms) <= MAX_POINTS, line.last) == (True, 2999)
    store.write(Rounds().points(round_of(*(group(f"g{n:02}", (0, n), topic=f"t{n}") for n in range(30))), NOW - 1))
    groups = groups_view(reader)
    assert [line.label for line in groups.chart.lines] == [f"g{number}" for number in range(29, 19, -1)]
    assert (len(groups.chart.lines), groups.chart.left_out) == (MAX_LINES, 20)


def test_the_last_lag_is_shown_if_there_is_no_newer_one(store: LocalStore, reader: LocalStore) -> None:
    """Without a round in the period, the table has the lag of the last round, and the chart has no lines."""
    rounds = Rounds()
    store.write(rounds.points(round_of(group("old", (95, 100))), NOW - 120 * MINUTE))
    store.write(rounds.points(round_of(group("g", (30, 100))), NOW - 60 * MINUTE))
    assert read_groups(reader) == ([("old", 5), ("g", 70)], 0, NOW - 60 * MINUTE)


def test_of_many_groups_and_partitions_only_the_worst_are_drawn(store: LocalStore, reader: LocalStore) -> None:
    """The table has all of them. Lines are read and drawn for the worst only."""
    many = (group(f"g{number:04}", (0, number), topic=f"t{number}") for number in range(MAX_GROUPS + 1))
    wide = group("wide", *((0, number + 1000) for number in range(MAX_PARTITIONS + 30)), topic="wide")
    store.write(Rounds().points(round_of(*many, wide), NOW - 1000))
    view = groups_view(reader)
    states = read_groups_now(reader, PERIOD).states
    assert (len(states), len(view.trends), states[0].group) == (MAX_GROUPS + 2, WORST_GROUPS, "wide")
    assert (len(view.chart.lines), view.chart.left_out) == (MAX_LINES, MAX_GROUPS + 2 - MAX_LINES)
    one = read_group_view(reader, read_groups_now(reader, PERIOD), "wide", PERIOD)
    assert one.state is not None
    assert len(one.state.partitions) == MAX_PARTITIONS + 30
    assert (len(one.by_partition.lines), one.by_partition.left_out) == (MAX_LINES, MAX_PARTITIONS + 30 - MAX_LINES)
    assert one.by_partition.lines[0].label == f"wide/{MAX_PARTITIONS + 29}"


class Counting(Points):
    """A store in memory that counts the values that are read of each measurement."""

    values: Counter[str]

    def read(self, measurement: str, fields: Sequence[str], **options: Any) -> list[Series]:
        """Return the points as a store returns them."""
        found = super().read(measurement, fields, **options)
        self.values[measurement] += sum(len(one.values) for one in found)
        return found


def test_the_home_reads_the_newest_values_of_each_group_once() -> None:
    """Nothing is read of earlier rounds. Whether the sums are complete, and the apps' lag, take a few fields more."""
    rounds, store = Rounds(), Counting()
    for at in range(10):
        groups = [group(f"g{number}", (at * 2, 100 + at * 3), topic=f"t{number}") for number in range(20)]
        store.points += rounds.points(round_of(*groups), NOW - (10 - at) * 2000)
    store.values = Counter()
    read_page(store, Selection(), PERIOD)
    assert store.values[GROUPS] <= 20 * (len(GROUP_FIELDS) + 1)
    assert store.values[LAG] == 20 * 2


def covered(position: int, ts_ms: int, name: str, *, start: int = 0, partition: int = 0, app: str = "orders") -> Point:
    tags = {"app": app, "metric_type": "position", "topic": "t", "partition": str(partition)}
    return Point(name, tags, {"start": start, "position": position, "instances": 1, "lives": 1}, ts_ms)


def test_a_counter_has_its_own_positions(store: LocalStore, reader: LocalStore) -> None:
    """Each of two consumers in an app has its own positions. Other positions do not count."""
    store.write([counted(100, NOW, "paid"), covered(100, NOW, "paid.position")])
    store.write([counted(53, NOW, "shipped"), covered(50, NOW, "shipped.position"), covered(7, NOW, "position")])
    for name, number, offsets in (("paid", 0, 100), ("shipped", 3, 50)):
        view = read_compare(reader, Selection(view="compare", metric=name), PERIOD)
        assert view.counters == (("orders", "paid"), ("orders", "shipped"))
        assert view.compared is not None
        now = view.compared.at(NOW)
        assert (now.twice, [one.processed.size for one in now.partitions]) == (Bounds(number, None, number), [offsets])


def test_a_consumer_is_compared_with_what_was_sent(store: LocalStore, reader: LocalStore) -> None:
    """That is the default, also for an app of another view that has no positions. A name and a dash are kept."""
    store.write([counted(90, NOW - MINUTE, "n", "b"), covered(90, NOW - MINUTE, "n.position", app="b")])
    store.write([counted(95, NOW - MINUTE, "n.taken", "b"), covered(90, NOW - MINUTE, "n.taken.position", app="b")])
    store.write([counted(100, NOW, "sent", "a"), covered(100, NOW, "sent.position", app="a")])
    for selection, sent in (
        (Selection(), "a/sent"),
        (Selection(app="c", metric="x", from_other_view=True), "a/sent"),
        (Selection(sent=DASH), DASH),
        (Selection(sent="a/sent"), "a/sent"),
    ):
        view = read_compare(reader, selection, PERIOD)
        assert (view.selection.app, view.selection.metric, view.selection.sent) == ("b", "n", sent)
    assert view.compared is not None
    assert view.compared.at(NOW).in_flight == Bounds(10, 10)
    last = {line.label: line.last for line in over_time(view.compared, PERIOD).lines}
    assert last == {"lost": 0, "in flight": 10, "counted twice": 0, "processed twice at most": 5}
    assert read_compare(reader, Selection(app="c"), PERIOD).compared is None
    assert read_compare(reader, Selection(sent="a/unknown"), PERIOD).compared is None


def test_the_reporters_own_metrics_come_last(store: LocalStore, reader: LocalStore) -> None:
    """The reporter's own metrics are in a table of their own, and are the default only if there are no others."""
    own = "tallystream.reporter.failures"
    store.write(
        [counted(1, NOW, own), counted(2, NOW, "zebra"), counted(3, NOW, "zoo"), counted(4, NOW, own, app="with none")]
    )
    view = read_metrics(reader, Selection(), PERIOD, round_ms=None)
    assert (view.app, view.metric) == ("orders", "zebra")
    assert ([row.name for row in view.metrics], [row.name for row in view.own_metrics]) == (["zebra", "zoo"], [own])
    only = read_metrics(reader, Selection(app="with none"), PERIOD, round_ms=None)
    assert (only.metric, only.metrics, [row.value.last for row in only.own_metrics]) == (own, (), [4])


def row(ts_ms: int, life: str, **field: float) -> Point:
    type_ = "gauge" if "value" in field else "position" if "position" in field else "counter"
    tags = {"app": "orders", "metric_type": type_, "instance": "web"}
    return Point(f"instance:{type_}", tags, {**field, "life": life}, ts_ms)


@pytest.mark.parametrize(("every_ms", "twice_ms"), [(1000, 15_000), (30_000, 90_000)])
def test_a_gauge_of_the_life_before_a_restart_ends(
    store: LocalStore, reader: LocalStore, every_ms: int, twice_ms: int
) -> None:
    """It counts for three reporting intervals, and at least 15 s, as long as an instance is living."""
    store.write([counted(1, NOW, "gauge", type_="gauge")])
    began = NOW - 20 * every_ms
    store.write([row(began + number * every_ms, "ab"[number >= 5], value=10.0) for number in range(21)])
    view = read_metrics(reader, Selection(metric="gauge"), PERIOD, round_ms=None)
    (line,) = view.by_instance.lines
    restarted = began + 5 * every_ms
    assert line.values[:7] == [10, 10, 10, 10, 10, 20, 20]
    assert [line.at(restarted - every_ms + twice_ms + late) for late in (0, every_ms)] == [20, 10]


def test_both_living_lives_of_an_instance_have_their_gauge(store: LocalStore, reader: LocalStore) -> None:
    """Processes that share an ID report at different times of the interval, and no gauge falls between two reports."""
    store.write([counted(1, NOW, "gauge", type_="gauge")])
    for number in range(10):
        ts_ms = NOW - 600_000 + number * 60_000
        store.write([row(ts_ms, "a", value=10.0), row(ts_ms + 1000, "b", value=5.0)])
    view = read_metrics(reader, Selection(metric="gauge"), PERIOD, round_ms=None)
    (line,) = view.by_instance.lines
    assert set(line.values[1:]) == {15}


def test_the_lives_of_an_instance_are_added_up(store: LocalStore, reader: LocalStore) -> None:
    """Counts are added over all lives, gauges over living ones. Of positions the highest is shown."""
    store.write([counted(1, NOW, "counter"), counted(1, NOW, "gauge", type_="gauge"), counted(1, NOW, "position")])
    counts = [("a", 100), ("b", 10), ("a", 110), ("b", 20), ("c", 1), ("b", 25)]
    for number, (life, count) in enumerate(counts):
        ts_ms = NOW - 400_000 + number * 1000
        store.write(
            [row(ts_ms, life, count=count), row(ts_ms, life, value=count / 2), row(ts_ms, life, position=count)]
        )
    store.write([row(NOW - 200_000, "c", value=2.0)])
    lines = {}
    for metric in ("counter", "gauge", "position"):
        view = read_metrics(reader, Selection(metric=metric), PERIOD, round_ms=None)
        ((label, values),) = [(line.label, line.values) for line in view.by_instance.lines]
        assert label == "web"
        lines[metric] = values
    assert lines["counter"][:6] == [100, 110, 120, 130, 131, 136]
    assert lines["gauge"][:7] == [50, 55, 60, 65, 65.5, 68, 2]
    assert lines["position"][:6] == [100, 100, 110, 110, 110, 110]


def test_the_systems_own_app_is_not_the_default(store: LocalStore, reader: LocalStore) -> None:
    """Events and rows of instances are no sums. The system's own metrics are an app, but not the default one."""
    event = Point("tallystream.events", {"app": "a", "kind": "restart"}, {"text": "restart: i"}, NOW)
    own = counted(1, NOW, "tallystream.input.records", "tallystream")
    store.write([counted(7, NOW, app="zebra"), counted(3, NOW, "instance:records", "a"), event, own])
    view = read_metrics(reader, Selection(), PERIOD, round_ms=None)
    assert (view.apps, view.app) == (("tallystream", "zebra"), "zebra")
    assert [row.value.last for row in view.metrics] == [7]
    only = read_metrics(reader, Selection(app="tallystream"), PERIOD, round_ms=None)
    assert [row.value.last for row in only.metrics] == [1]


def test_a_past_moment_has_no_later_points(store: LocalStore, reader: LocalStore) -> None:
    """Without a time, points of clocks that are ahead are shown. At a time in the past, later points are not."""
    rounds = Rounds()
    for ago_s, lag in ((2, 3), (0, 5), (-1, 9)):
        store.write(rounds.points(round_of(group("g", (10, 10 + lag))), NOW - ago_s * 1000))
        store.write([counted(lag, NOW - ago_s * 1000)])
    moment = Selection(at="2023-11-14T22:13:20")
    for selection, lag in ((moment, 5), (Selection(), 9)):
        period = selection.period(NOW)
        groups = groups_view(reader, period)
        one = read_group_view(reader, read_groups_now(reader, period), "g", period)
        of_metrics = read_metrics(reader, selection, selection.period(NOW), round_ms=None)
        assert one.state is not None
        state = read_groups_now(reader, period).states[0]
        assert [state.lag, groups.trends["g"].last, one.state.lag, one.by_partition.lines[0].last] == [lag] * 4
        assert [row.value.last for row in of_metrics.metrics] == [lag]
    assert moment.at_ms == NOW


def test_an_unchanged_lag_is_drawn_to_the_newest_round(store: LocalStore, reader: LocalStore) -> None:
    """A group whose lag does not change has few points. Its line ends where the others do."""
    rounds = Rounds()
    for ago_s in range(20, -1, -2):
        store.write(
            rounds.points(round_of(group("idle", (7, 7)), group("busy", (90 - ago_s, 100))), NOW - ago_s * 1000)
        )
    view = groups_view(reader)
    assert {line.label: line.times_ms[-1] for line in view.chart.lines} == {"idle": NOW, "busy": NOW}


def test_the_axes_fit_what_there_is(store: LocalStore, reader: LocalStore) -> None:
    """They begin with the first value of the view, but cover a minute at least. A count that began there has a 0."""
    store.write([counted(87, NOW - 4 * MINUTE), counted(90, NOW - 1000)])
    store.write([counted(5, NOW - 9 * MINUTE, "old"), counted(3, NOW - 2000, "new")])
    for selection, start_ms, began in (
        (Selection(metric="records"), NOW - 4 * MINUTE, True),
        (Selection(metric="new"), NOW - MINUTE, True),
        (Selection(metric="old", range="5m"), NOW - 5 * MINUTE, False),
        (Selection(metric="old", range="7d"), NOW - 9 * MINUTE, True),
    ):
        view = read_metrics(reader, selection, selection.period(NOW), round_ms=NOW)
        charts = (view.over_time, view.rates, view.instances)
        assert [chart.period_ms for chart in charts] == [(start_ms, NOW)] * 3
        assert view.over_time.began is began
        assert {line.times_ms[0] >= start_ms for chart in charts for line in chart.lines} == {True}
    store.write(Rounds().points(round_of(group("g", (30, 100))), NOW - 1000))
    one = read_group_view(reader, read_groups_now(reader, PERIOD), "g", PERIOD)
    assert [chart.period_ms for chart in (one.by_partition, one.rates, one.time_lag)] == [(NOW - MINUTE, NOW)] * 3


def test_the_gauge_of_a_dead_instance_ends(store: LocalStore, reader: LocalStore) -> None:
    """The sum has no value from when nobody reports it, and the line of the instance ends at its last report."""
    gauge = {"app": "orders", "metric_type": "gauge"}
    for ago_s, number in ((30, 1), (20, 1), (10, 0)):
        fields = {"sum": 7.5, "number": number, "instances": number, "lives": number}
        store.write([Point("gauge", gauge, fields, NOW - ago_s * 1000)])
    store.write([row(NOW - ago_s * 1000, "a", value=7.5) for ago_s in (30, 20)])
    view = read_metrics(reader, Selection(metric="gauge"), PERIOD, round_ms=NOW)
    (total,), (alone,) = view.over_time.lines, view.by_instance.lines
    assert (total.at(NOW - 11_000), total.last) == (7.5, None)
    assert (alone.times_ms[-1], alone.last) == (NOW - 20_000, 7.5)


class WrittenMeanwhile:
    """A reader of a store to which a newer round and newer sums are written after every request."""

    def __init__(self, store: LocalStore, reader: LocalStore, rounds: Rounds) -> None:
        self.measurements = reader.measurements
        self._store, self._reader, self._rounds, self._ts_ms = store, reader, rounds, NOW

    def read(self, *args: Any, **options: Any) -> list[Series]:
        """Read, and write the points of the next millisecond."""
        found = self._reader.read(*args, **options)
        self._ts_ms += 1
        self._store.write([*lag_of(self._ts_ms, self._rounds), counted(self._ts_ms - NOW, self._ts_ms)])
        return found


def lag_of(ts_ms: int, rounds: Rounds) -> list[Point]:
    lag = 5 + ts_ms - NOW
    return rounds.points(round_of(group("g", (10, 10 + lag), topic="t")), ts_ms)


@pytest.mark.parametrize("selection", [Selection(), Selection(view="groups"), Selection(view="groups", group="g")])
def test_all_lag_on_a_page_is_that_of_one_round(store: LocalStore, reader: LocalStore, selection: Selection) -> None:
    """The banner, the tiles, the charts and the tables have no round that ends while the page is read."""
    rounds = Rounds()
    store.write([*lag_of(NOW, rounds), counted(7, NOW), covered(7, NOW, "records.position")])
    data = read_page(WrittenMeanwhile(store, reader, rounds), selection, PERIOD)
    assert (data.groups.round_ms, [one.lag for one in data.groups.states]) == (NOW, [5])
    if isinstance(data.view, GroupsView):
        assert [data.view.trends["g"].last, *(line.last for line in data.view.chart.lines)] == [5, 5]
    elif isinstance(data.view, GroupView):
        assert data.view.state is not None
        assert [data.view.state.lag, *(line.last for line in data.view.by_partition.lines)] == [5, 5]
    else:
        assert isinstance(data.view, Home)
        assert [line.lag for line in data.view.apps] == [5]


def test_the_chosen_sum_is_the_same_everywhere(store: LocalStore, reader: LocalStore) -> None:
    """The tile, the chart and the row of the table have one value, although newer ones are written meanwhile."""
    rounds = Rounds()
    store.write([*lag_of(NOW, rounds), counted(7, NOW - 1000)])
    view = read_page(WrittenMeanwhile(store, reader, rounds), Selection(view="metrics"), PERIOD).view
    assert isinstance(view, MetricsView)
    (line,) = view.over_time.lines
    assert view.metrics == view.chosen
    assert line.last == view.chosen[0].value.last


def test_metrics_that_are_not_read_are_counted(
    store: LocalStore, reader: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both views that have all sums say of how many metrics they have nothing."""
    monkeypatch.setattr(sums, "MAX_MEASUREMENTS", 2)
    store.write([counted(7, NOW, name) for name in "abcde"])
    for view in ("home", "metrics"):
        found = read_page(reader, Selection(view=view), PERIOD).view
        assert isinstance(found, Home | MetricsView)
        assert found.left_out == 3


def test_a_period_begins_with_the_rate_of_the_minute_before_it(store: LocalStore, reader: LocalStore) -> None:
    """A steady count has the same rate at all times. One that began in the period has none before."""
    store.write([counted(2 * at, NOW - 20 * MINUTE + at * 1000) for at in range(0, 1200, 7)])
    store.write([counted(2 * at, NOW - 2 * MINUTE + at * 1000, "new") for at in range(0, 120, 7)])
    period = Selection(range="5m").period(NOW)
    for name, first_ms in (("new", NOW - 2 * MINUTE), ("records", NOW - 5 * MINUTE)):
        (line,) = read_metrics(reader, Selection(metric=name), period, round_ms=None).rates.lines
        assert 0 < line.times_ms[0] - first_ms <= 5000
    assert {value is not None and 1.75 < value < 2.25 for value in line.values} == {True}
