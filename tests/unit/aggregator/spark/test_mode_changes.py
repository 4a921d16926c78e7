"""When the mode changes: against queries whose batches the test decides, which Spark's own does not allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystream_aggregator.shutdown import StopRequest
from tallystream_aggregator.spark.query.modes import Choice, Mode, behind, run_modes

if TYPE_CHECKING:
    from pathlib import Path

MOST = 100


class Query:
    """A query between two batches."""

    name = "fake"
    lastProgress = None  # noqa: N815 (Spark's name)

    def __init__(self, run: str, mode: Mode) -> None:
        self.runId, self.mode = run, mode
        self.isActive = True

    @property
    def status(self) -> dict[str, Any]:
        """No batch runs."""
        return {"isTriggerActive": False}

    def stop(self) -> None:
        """End it."""
        self.isActive = False

    def exception(self) -> None:
        """Return no failure."""


def test_a_query_is_stopped_and_started_again_under_the_other_plan(tmp_path: Path) -> None:
    """What an earlier run has told counts for nothing, and nothing ends before the stop is asked for."""
    stop, told, changed = StopRequest(), [], []
    queries: list[Query] = []
    progress = [
        {"runId": "0", "batchId": 7, "sources": [{"endOffset": {"m": {"0": 1}}, "latestOffset": {"m": {"0": 900}}}]},
        {"runId": "0", "batchId": 8, "sources": [{"endOffset": {"m": {"0": 9}}, "latestOffset": {"m": {"0": 9}}}]},
    ]

    def start(mode: Mode) -> Any:
        queries.append(Query(str(len(queries)), mode))
        return queries[-1]

    def last() -> dict[str, Any]:
        told.append(len(queries))
        if told.count(2) == 3:
            stop.set()
        return progress[min(len(told) - 1, 1)]

    choice = Choice(None, MOST, 1_000)
    code = run_modes(
        choice,
        start,
        tmp_path,
        stop=stop,
        after_batch=lambda: None,
        last=last,
        changing=lambda query: changed.append(query.runId),
    )
    assert code == 0
    assert [query.mode for query in queries] == [Mode.CATCH_UP, Mode.LIVE]
    assert [query.isActive for query in queries] == [False, False]
    assert changed == ["0"]


def test_how_far_a_query_is_behind_counts_from_its_checkpoint(tmp_path: Path) -> None:
    """Where it has finished no batch, from where the new table begins; a topic that is new, from its first record."""
    ends = {"m": {"0": 50, "1": 9}, "n": {"0": 3}}
    assert behind(tmp_path, {"m": {"0": 20, "1": 9}}, ends) == 33
    for log, text in (("offsets", 'v1\n{"batchTimestampMs":1}\n{"m":{"0":40,"1":9}}'), ("commits", "v1\n{}")):
        (tmp_path / log).mkdir()
        (tmp_path / log / "4").write_text(text, encoding="utf-8")
    assert behind(tmp_path, {}, ends) == 13
