"""When a query is stopped: against a query whose triggers the test decides, which Spark's own does not allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tallystream_aggregator.shutdown import StopRequest
from tallystream_aggregator.spark.runner import run_until_stopped


class Query:
    """A query in the middle of batch 7, which ends when it has been looked at `looks` times."""

    name = "fake"

    def __init__(self, *, looks: int, pause_after: bool) -> None:
        self.isActive = True
        self.looks = looks
        self.pause_after = pause_after
        self.stopped_after: int | None = None

    @property
    def status(self) -> dict[str, Any]:
        """Whether a trigger is active: until batch 7 is done, and after it too unless there is a pause."""
        self.looks -= 1
        assert self.looks > -3, "batch 7 is done, and the query is still not stopped"
        return {"isTriggerActive": self.looks > 0 or not self.pause_after}

    @property
    def lastProgress(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """The progress of the batch that was finished last."""
        return {"batchId": 6 if self.looks > 0 else 7}

    def stop(self) -> None:
        """End it."""
        self.isActive = False
        self.stopped_after = self.lastProgress["batchId"]

    def exception(self) -> None:
        """Return no failure."""


def stop(query: Query) -> int:
    """Ask for a stop, and return the exit code."""
    request = StopRequest()
    request.set()
    return run_until_stopped(query, Path("c"), stop=request)  # type: ignore[arg-type]  # what it uses of a query


def test_a_stop_lets_the_batch_finish() -> None:
    """The batch that runs when the stop is asked for is done before the query is stopped."""
    query = Query(looks=3, pause_after=True)
    assert stop(query) == 0
    assert query.stopped_after == 7


def test_a_stop_needs_no_pause_between_two_batches() -> None:
    """On a machine so busy that each batch follows the last at once, a stop waits for one batch and no longer."""
    query = Query(looks=3, pause_after=False)
    assert stop(query) == 0
    assert query.stopped_after == 7
