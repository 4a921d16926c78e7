"""`tallystream compare`: what was sent against what was processed, from a local store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.printed import NOW_MS, cells, printed
from support.stores import write
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings, open_reader, open_sink
from tallystream_dashboards.data.compare import Bounds
from tallystream_dashboards.data.compare_reading import read_compared
from tallystream_dashboards.data.lines import Period
from tallystream_dashboards.formatting import DASH
from tallystream_dashboards.terminal.compare import BAD, UNKNOWN, CompareSettings
from tallystream_dashboards.terminal.show import FOUND, NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tallystream_aggregator.sinks.base import Series

MINUTE_MS = 60_000


def counted(name: str, count: int, ts_ms: int = NOW_MS, app: str = "orders", **tags: str) -> Point:
    return Point(name, {"app": app, "metric_type": "counter", **tags}, {"count": count}, ts_ms)


def position(name: str, partition: str, start: int, at: int, **point: Any) -> Point:
    tags = {"app": "orders", "metric_type": "position", "topic": "in", "partition": partition}
    ts_ms = point.pop("ts_ms", NOW_MS)
    return Point(name, tags | point, {"start": start, "position": at}, ts_ms)


def processed(count: int, covered: int, taken: int, ts_ms: int = NOW_MS) -> list[Point]:
    """Return what the consumers of `in` report: what they counted, the offsets that they cover, and what they took."""
    names = ("billing.processed", "billing.processed.taken")
    points = [counted(name, number, ts_ms, "billing") for name, number in zip(names, (count, taken), strict=True)]
    return points + [position(f"{name}.position", "0", 0, covered, ts_ms=ts_ms, app="billing") for name in names]


def sent(count: int, ts_ms: int = NOW_MS) -> list[Point]:
    return [counted("orders.sent", count, ts_ms), position("orders.sent.position", "0", 0, count, ts_ms=ts_ms)]


@pytest.fixture
def store(tmp_path: Path) -> StoreSettings:
    return StoreSettings.parse(f"local:{tmp_path / 'store.db'}", retention_days=0)


def compared(store: StoreSettings, *names: str, **settings: Any) -> tuple[int, list[str]]:
    return printed(CompareSettings(store=store, names=names, **settings))


def test_a_pair_of_counters(store: StoreSettings) -> None:
    """A process was killed with 25 records. Twelve records wait: nothing is lost, and the numbers add up."""
    write(store, [*sent(1000, NOW_MS - MINUTE_MS), *processed(988, 988, 1013, NOW_MS - MINUTE_MS)])
    code, lines = compared(store, "orders.sent", "billing.processed")
    assert code == UNKNOWN
    assert list(map(cells, lines)) == [
        ["RECORDS", "CERTAINTY"],
        ["sent", "1,000", "exact"],
        ["counted as processed", "988", "exact"],
        ["lost", "0", "exact"],
        ["in flight", "12", "exact"],
        ["counted twice", "0", "exact"],
        ["processed twice", "0", "at least 0, at most 25"],
        [""],
        ["TOPIC", "PARTITION", "OFFSETS", "PROCESSED", "BEFORE", "IN FLIGHT"],
        ["in", "0", "1,000", "988", "0", "12"],
        [""],
        ["Nothing has changed since 22:12:20."],
        ["25 records were taken and not counted: in work, or by a process that was killed."],
    ]


def test_the_exit_code_says_whether_all_is_well(store: StoreSettings) -> None:
    """It is 0 if nothing was lost or processed twice, whatever is in flight, and 2 if records were counted twice."""
    write(store, [*sent(1000), *processed(988, 988, 988)])
    assert compared(store, "orders.sent", "billing.processed")[0] == FOUND
    assert compared(store, "billing.processed")[0] == FOUND
    write(store, [*processed(990, 988, 990)])
    assert compared(store, "orders.sent", "billing.processed")[0] == BAD
    code, (text,) = compared(store, "orders.sent", "billing.procesed")
    assert (code, "'billing.procesed'" in text) == (NOTHING, True)


def test_the_moment_when_all_stood_still(store: StoreSettings) -> None:
    """While numbers change, those of the last moment without changes are shown, too."""
    write(store, [*sent(500, NOW_MS - MINUTE_MS), *processed(490, 480, 490, NOW_MS - MINUTE_MS)])
    write(store, [*sent(1000, NOW_MS - 1000), *processed(600, 590, 610, NOW_MS - 500)])
    _, lines = compared(store, "orders.sent", "billing.processed", json=True)
    found = json.loads(lines[0])
    assert (found["in_flight"], found["processed_twice"]) == (
        {"at_least": 410, "at_most": 410},
        {"at_least": 10, "at_most": 20},
    )
    assert found["still_ms"] == NOW_MS - MINUTE_MS
    assert found["still"]["twice"] == {"at_least": 10, "at_most": 10}
    assert found["partitions"] == [{"topic": "in", "partition": "0", "known": [0, 1000], "processed": [0, 590]}]


def test_a_counter_of_several_apps_and_of_one(store: StoreSettings) -> None:
    """A name is that of all apps; APP/NAME is that of one. Both may contain slashes."""
    write(store, [counted("sent", 5), counted("sent", 7, app="a/b"), counted("done", 5), counted("x/y", 3, app="a/b")])
    for name, number in (("sent", 12), ("orders/sent", 5), ("a/b/sent", 7), ("x/y", 3), ("a/b/x/y", 3)):
        found = json.loads(compared(store, name, "done", json=True)[1][0])
        assert found["sent"] == {"at_least": number, "at_most": None}
        assert found["counted"] == {"at_least": 5, "at_most": 5}


def test_consumers_with_different_tags(store: StoreSettings) -> None:
    """Queries of a Spark job read the same partitions. Each is compared by its tag; of all together little is known."""
    for query, count in (("scores", 80), ("alerts", 90)):
        write(store, [counted("spark.records", count, query=query)])
        write(store, [position("spark.records.position", "0", 0, count, query=query)])
    write(store, sent(100))
    for tags, number, text in (((), 170, "at least 0"), (("query=scores",), 80, "exact")):
        _, lines = compared(store, "orders.sent", "spark.records", tags=tags)
        rows = {row[0]: row[1:] for row in map(cells, lines)}
        assert (rows["counted as processed"], rows["counted twice"]) == ([f"{number}", "exact"], ["0", text])
    with pytest.raises(ConfigError, match="--tag"):
        CompareSettings(store=store, tags=("scores",))


def test_the_offsets_of_a_group_alone(store: StoreSettings) -> None:
    """Without counters, what was deleted before it was committed is lost, and what is not committed is in flight."""
    for partition, start, end, committed in (("0", 100, 500, 450), ("1", 100, 300, 40)):
        tags = {"group": "billing", "topic": "in", "partition": partition}
        write(store, [Point("tallystream.lag", tags, {"start": start, "end": end, "committed": committed}, NOW_MS)])
    code, lines = compared(store, group="billing")
    assert (code, list(map(cells, lines[1:6]))) == (
        BAD,
        [
            ["sent", "660", "exact"],
            ["counted as processed", "350", "exact"],
            ["lost", "60", "exact"],
            ["in flight", "250", "exact"],
            ["counted twice", "0", "at least 0"],
        ],
    )
    write(store, [counted("sent", 660), counted("done", 400)])
    found = json.loads(compared(store, "sent", "done", group="billing", json=True)[1][0])
    assert (found["lost"], found["in_flight"]) == ({"at_least": 0, "at_most": None}, {"at_least": 0, "at_most": 310})


def test_without_names_each_counter_with_positions_is_a_line(store: StoreSettings) -> None:
    """A counter is the sum over its tags. What was taken, has no positions or is of one instance has no line."""
    write(
        store,
        [
            counted("records", 1_000, kind="a"),
            counted("records", 120, kind="b"),
            position("records.position", "0", 100, 700),
            position("records.position", "1", 0, 500),
            counted("errors", 3),
            counted("instance:records", 600, instance="orders-1"),
            position("instance:records.position", "0", 100, 600),
            *processed(500, 500, 725),
        ],
    )
    code, lines = compared(store)
    assert code == BAD
    assert list(map(cells, lines)) == [
        ["METRIC", "COUNTED", "TWICE", "AT MOST", "PARTITIONS"],
        ["billing/billing.processed", "500", "0", "225", "1"],
        ["orders/records", "1,120", "20", DASH, "2"],
    ]
    assert len(compared(store, app="billing")[1]) == 2
    code, lines = compared(store, app="payments")
    assert (code, len(lines)) == (NOTHING, 1)
    assert "ConsumerProgress" in lines[0]


class Written:
    """A reader of a store to which the shipper writes 100 more records, `times` times, between two reads."""

    def __init__(self, store: StoreSettings, times: int) -> None:
        self._reader, self._sink, self._times = open_reader(store), open_sink(store), times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def read(self, measurement: str, fields: Sequence[str], **kwargs: Any) -> list[Series]:
        """Read, and then write if it was the counter."""
        found = self._reader.read(measurement, fields, **kwargs)
        if self._times and measurement == "records":
            self._times -= 1
            ts_ms, more = NOW_MS - self._times, 100 * (9 - self._times)
            self._sink.write(
                [counted("records", 1_000 + more, ts_ms), position("records.position", "0", 0, more, ts_ms=ts_ms)]
            )
        return found


@pytest.mark.parametrize("times", [0, 1, 3])
def test_all_numbers_are_of_one_moment(store: StoreSettings, times: int) -> None:
    """The shipper may write between the read of the counters and that of the positions. Then all are read again."""
    write(store, [counted("records", 1_000, NOW_MS - 9), position("records.position", "0", 0, 0, ts_ms=NOW_MS - 9)])
    found = read_compared(Written(store, times), None, "records", None, Period(NOW_MS, NOW_MS, NOW_MS + 1))
    assert found is not None
    assert found.at(NOW_MS).twice == Bounds(1_000, 1_000)


def test_three_names_are_refused(store: StoreSettings) -> None:
    """A comparison has two sides."""
    with pytest.raises(ConfigError, match="NAMES"):
        CompareSettings(store=store, names=("a", "b", "c"))
