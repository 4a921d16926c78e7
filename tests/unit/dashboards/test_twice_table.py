"""`tallystream twice`: what each counter counted less the offsets that its positions cover, from a local store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.printed import NOW_MS, cells, printed
from support.stores import write
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings, open_reader, open_sink
from tallystream_dashboards.data.duplicates import read_duplicates_of_app
from tallystream_dashboards.data.lines import Period
from tallystream_dashboards.formatting import DASH
from tallystream_dashboards.terminal.twice import TwiceSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tallystream_aggregator.sinks.base import Series


def counted(name: str, count: int, ts_ms: int = NOW_MS, app: str = "orders", **tags: str) -> Point:
    return Point(name, {"app": app, "metric_type": "counter", **tags}, {"count": count}, ts_ms)


def position(name: str, partition: str, start: int, at: int, ts_ms: int = NOW_MS) -> Point:
    tags = {"app": "orders", "metric_type": "position", "topic": "in", "partition": partition}
    return Point(name, tags, {"start": start, "position": at}, ts_ms)


@pytest.fixture
def store(tmp_path: Path) -> StoreSettings:
    """Return a store with one counter that counted 20 records twice, one that counted none twice, and one without."""
    store = StoreSettings.parse(f"local:{tmp_path / 'store.db'}", retention_days=0)
    write(
        store,
        [
            counted("records", 500, NOW_MS - 60_000, kind="a"),
            position("records.position", "0", 100, 600, NOW_MS - 60_000),
            counted("records", 1_000, kind="a"),
            counted("records", 120, kind="b"),
            counted("records", 77, app="billing"),
            position("records.position", "0", 100, 700),
            position("records.position", "1", 0, 500),
            counted("batches", 5),
            position("batches.position", "0", 0, 5),
            counted("errors", 3),
            counted("instance:records", 600, instance="orders-1"),
            position("instance:records.position", "0", 100, 600),
        ],
    )
    return store


def test_each_counter_with_positions_is_a_line(store: StoreSettings) -> None:
    """A counter is the sum over its tags. One without positions, of another app or of one instance is not shown."""
    code, lines = printed(TwiceSettings(store=store, app="orders"))
    assert code == 0
    assert list(map(cells, lines)) == [
        ["METRIC", "COUNTED", "COVERED", "TWICE", "AT MOST", "PARTITIONS"],
        ["batches", "5", "5", "0", DASH, "1"],
        ["records", "1,120", "1,100", "20", DASH, "2"],
    ]


def test_what_was_taken_is_the_bound_of_its_counter(tmp_path: Path) -> None:
    """Records that were taken twice may have been processed twice. What was taken is no line of its own."""
    store = StoreSettings.parse(f"local:{tmp_path / 'store.db'}", retention_days=0)
    taken = [counted("records.taken", 825), position("records.taken.position", "0", 0, 600)]
    write(store, [counted("records", 500), position("records.position", "0", 0, 500), *taken])
    _, lines = printed(TwiceSettings(store=store, app="orders"))
    assert list(map(cells, lines[1:])) == [["records", "500", "500", "0", "225", "1"]]


def test_a_moment_in_the_past(store: StoreSettings) -> None:
    """At a time in the past, the numbers are those of that time."""
    _, lines = printed(TwiceSettings(store=store, app="orders", at_ms=NOW_MS - 1))
    assert list(map(cells, lines[1:])) == [["records", "500", "500", "0", DASH, "1"]]


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
                [counted("records", 1_000 + more, ts_ms), position("records.position", "0", 0, more, ts_ms)]
            )
        return found


@pytest.mark.parametrize("times", [0, 1, 3])
def test_counters_and_positions_are_of_one_moment(tmp_path: Path, times: int) -> None:
    """The shipper may write between the read of the counters and that of the positions. Then both are read again."""
    settings = StoreSettings.parse(f"local:{tmp_path / 'store.db'}", retention_days=0)
    write(settings, [counted("records", 1_000, NOW_MS - 9), position("records.position", "0", 0, 0, NOW_MS - 9)])
    found = read_duplicates_of_app(Written(settings, times), "orders", Period(NOW_MS, NOW_MS, NOW_MS + 1))
    assert found["records"].count == 1_000


def test_json_has_the_positions(store: StoreSettings) -> None:
    """One object a line, with the numbers that the result is computed from."""
    _, lines = printed(TwiceSettings(store=store, app="orders", json=True))
    assert json.loads(lines[1]) == {
        "app": "orders",
        "metric": "records",
        "counted": 1120,
        "covered": 1100,
        "twice": 20,
        "at_most": None,
        "positions": [
            {"topic": "in", "partition": "0", "start": 100, "position": 700},
            {"topic": "in", "partition": "1", "start": 0, "position": 500},
        ],
    }


def test_an_app_without_positions_is_exit_code_1(store: StoreSettings) -> None:
    """A sentence says how to count with positions."""
    code, lines = printed(TwiceSettings(store=store, app="billing"))
    assert (code, len(lines)) == (1, 1)
    assert "'billing'" in lines[0]
    assert "ConsumerProgress" in lines[0]
