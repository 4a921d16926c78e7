"""The plain replay: the newest snapshot of each life, summed over lives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tallystream_cli.demo.replay import replay


def _record(instance: str, life: str, seq: int, *metrics: dict[str, Any]) -> tuple[bytes, bytes]:
    return instance.encode(), json.dumps({"app": "flights", "life": life, "seq": seq, "metrics": metrics}).encode()


def _counter(count: int) -> dict[str, Any]:
    return {"name": "flights.processed", "type": "counter", "count": count}


KEY = ("flights", "flights.processed", "counter", ())


def test_a_new_snapshot_replaces_and_lives_add_up() -> None:
    """Within a life the newest counts; the old life of a restarted instance keeps its last value."""
    done = replay(
        [
            _record("app-1", "A", 1, _counter(5)),
            _record("app-1", "A", 2, _counter(9)),
            _record("app-2", "B", 1, _counter(7)),
            _record("app-2", "C", 1, _counter(1)),
        ]
    )
    assert done.sums() == {KEY: {"count": 17}}
    assert done.counts("flights.processed") == {"app-1": 9, "app-2": 8}
    assert done.lives("app-2") == 2
    assert done.records == 4


def test_a_tombstone_of_nobody_changes_nothing() -> None:
    """The aggregator appends such ones to move the time on; one of an instance that was heard is an error."""
    counted = _record("app-1", "A", 1, _counter(5))
    done = replay([(b"tallystream-aggregator", b""), counted, (b"tallystream-aggregator", b"")])
    assert (done.records, done.sums()) == (1, {KEY: {"count": 5}})
    with pytest.raises(ValueError, match="app-1"):
        replay([counted, (b"app-1", b"")])


def test_an_old_or_repeated_snapshot_changes_nothing() -> None:
    """The highest seq of a life wins, in whatever order they come."""
    new = _record("app-1", "A", 2, _counter(9))
    assert replay([new, _record("app-1", "A", 1, _counter(5)), new]).sums() == {KEY: {"count": 9}}


def test_a_metric_that_a_later_snapshot_lacks_keeps_its_value() -> None:
    """A counter that is missing is not taken back."""
    assert replay([_record("a", "A", 1, _counter(5)), _record("a", "A", 2)]).sums() == {KEY: {"count": 5}}


def test_distributions_and_positions() -> None:
    """Counts and sums are added, extremes compared; a position takes the lowest start and the highest position."""
    tags = {"topic": "flights", "partition": "0"}

    def metrics(low: int, high: int) -> list[dict[str, Any]]:
        return [
            {"name": "delay", "type": "histogram", "count": 2, "sum": low + high, "min": low, "max": high},
            {"name": "at", "type": "position", "tags": tags, "start": low + 10, "position": high + 10},
            {"name": "now", "type": "gauge", "value": 3},
        ]

    done = replay([_record("a", "A", 1, *metrics(-3, 5)), _record("b", "B", 1, *metrics(0, 8))])
    assert done.sums() == {
        ("flights", "delay", "histogram", ()): {"count": 4, "sum": 10, "min": -3, "max": 8},
        ("flights", "at", "position", tuple(sorted(tags.items()))): {"start": 7, "position": 18},
    }
