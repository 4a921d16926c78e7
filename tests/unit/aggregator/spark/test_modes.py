"""The mode of a query: the choice by lag, and the change between two batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tallystream_aggregator.shutdown import StopRequest
from tallystream_aggregator.spark.query.modes import (
    FAR_BEHIND,
    MAX_BATCHES_FAR_BEHIND,
    Choice,
    Mode,
    behind,
    left,
    run_modes,
)

if TYPE_CHECKING:
    from pathlib import Path

MAX_RECORDS = 100
FAR = FAR_BEHIND * MAX_RECORDS + 1


@pytest.mark.parametrize(("lag", "mode"), [(0, Mode.LIVE), (FAR - 1, Mode.LIVE), (FAR, Mode.CATCH_UP)])
def test_a_query_begins_with_the_mode_for_its_lag(lag: int, mode: Mode) -> None:
    """With a lag of few live batches it begins live: a change would take longer than these batches."""
    assert Choice(None, MAX_RECORDS, lag).now is mode


def test_catch_up_ends_when_less_than_a_live_batch_is_left() -> None:
    """It does not end earlier: a live batch takes longer for the same records."""
    choice = Choice(None, MAX_RECORDS, FAR)
    assert [choice.finished(lag) for lag in (FAR * 9, MAX_RECORDS, MAX_RECORDS - 1)] == [False, False, True]
    assert choice.now is Mode.LIVE


def test_a_query_that_stays_far_behind_changes_to_catch_up() -> None:
    """One burst is not enough: the lag must last for several batches in a row."""
    choice = Choice(None, MAX_RECORDS, 0)
    burst = [FAR] * (MAX_BATCHES_FAR_BEHIND - 1) + [FAR - 1]
    assert not any(choice.finished(lag) for lag in burst * 2)
    changes = [choice.finished(FAR) for _ in range(MAX_BATCHES_FAR_BEHIND)]
    assert changes == [False] * (MAX_BATCHES_FAR_BEHIND - 1) + [True]
    assert choice.now is Mode.CATCH_UP


def test_a_lag_between_the_thresholds_does_not_change_the_mode() -> None:
    """So the mode does not alternate."""
    for lag in (0, FAR):
        choice = Choice(None, MAX_RECORDS, lag)
        mode = choice.now
        assert not any(choice.finished(lag) for lag in [MAX_RECORDS, FAR - 1] * 20)
        assert choice.now is mode


@pytest.mark.parametrize("forced", list(Mode))
def test_a_forced_mode_does_not_change(forced: Mode) -> None:
    """The lag does not matter."""
    choice = Choice(forced, MAX_RECORDS, FAR if forced is Mode.LIVE else 0)
    assert not any(choice.finished(lag) for lag in [FAR] * 9 + [0] * 9)
    assert choice.now is forced


def test_the_records_left_are_summed_over_all_partitions() -> None:
    """A partition of which nothing was read yet counts from its beginning."""
    source = {"endOffset": {"m": {"0": 5}}, "latestOffset": {"m": {"0": 9, "1": 3}}}
    assert left({"sources": [source, {"endOffset": None, "latestOffset": None}]}) == 7


def test_the_lag_is_counted_from_the_checkpoint(tmp_path: Path) -> None:
    """Without a finished batch it is counted from the beginning of the table. A new topic counts from offset 0."""
    ends = {"m": {"0": 50, "1": 9}, "n": {"0": 3}}
    assert behind(tmp_path, {"m": {"0": 20, "1": 9}}, ends) == 33
    for log, text in (("offsets", 'v1\n{"batchTimestampMs":1}\n{"m":{"0":40,"1":9}}'), ("commits", "v1\n{}")):
        (tmp_path / log).mkdir()
        (tmp_path / log / "4").write_text(text, encoding="utf-8")
    assert behind(tmp_path, {}, ends) == 13


class Query:
    """A query between two batches."""

    name = "fake"
    lastProgress = None  # noqa: N815 (Spark's name)

    def __init__(self, run: str, mode: Mode) -> None:
        self.runId, self.mode = run, mode
        self.isActive = True
        self.status = {"isTriggerActive": False}

    def stop(self) -> None:
        """Stop the query."""
        self.isActive = False

    def exception(self) -> None:
        """Return no failure."""


def test_a_query_is_stopped_and_started_in_the_other_mode(tmp_path: Path) -> None:
    """The progress of the first run does not end the second one. Only the stop request does."""
    stop = StopRequest()
    queries: list[Query] = []
    ends = [({"0": 1}, {"0": 900}), ({"0": 9}, {"0": 9})]
    events: list[Any] = [
        {"runId": "0", "batchId": batch, "sources": [{"endOffset": {"m": end}, "latestOffset": {"m": latest}}]}
        for batch, (end, latest) in enumerate(ends)
    ]

    def start(mode: Mode) -> Any:
        queries.append(Query(str(len(queries)), mode))
        return queries[-1]

    polls: list[int] = []

    def after_batch() -> None:
        polls.append(len(queries))
        listener.last = events[min(len(polls) - 1, 1)]
        if polls.count(2) == 3:
            stop.set()

    listener = SimpleNamespace(last=None, changing=set())
    choice = Choice(None, MAX_RECORDS, 1_000)
    assert run_modes(choice, start, listener, tmp_path, stop=stop, after_batch=after_batch) == 0  # type: ignore[arg-type]
    assert [query.mode for query in queries] == [Mode.CATCH_UP, Mode.LIVE]
    assert [query.isActive for query in queries] == [False, False]
    assert listener.changing == {"0"}
