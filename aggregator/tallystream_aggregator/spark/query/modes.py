"""Which of two plans a query runs, by how far it is behind: pure, told of each batch that is finished.

`live` is fast where batches are small, `backlog` where they are large: jobs.aggregate.job has both,
over the same checkpoint.
"""

from __future__ import annotations

from enum import StrEnum

BACKLOG_FACTOR = 40
"""The first batch of a backlog takes so many times as many records as a live one: compaction leaves few of them."""

FAR_BEHIND = 2
"""Live batches' worth of records, beyond which a query counts as far behind. A change of plans takes two or three
seconds, as four live batches of the short form do, and half a one of snapshots with fifty metrics."""

PATIENCE = 3
"""Finished batches in a row, after which a query that is far behind is not expected to catch up by itself."""


class Plan(StrEnum):
    """What a query's batches are made for."""

    LIVE = "live"
    BACKLOG = "backlog"


class Choice:
    """Chooses the plan; `forced` is the one that was asked for, None to go by lag.

    `most` is how many records a live batch takes, `behind` how many there are at first. `now` is the plan at the
    moment. A query that is far behind begins with, or changes to, the backlog's plan, and back when less than one live
    batch is left: so the lag has to grow, or shrink, by several batches between two changes.
    """

    def __init__(self, forced: Plan | None, most: int, behind: int) -> None:
        self._forced, self._most, self.behind = forced, most, behind
        self._far = 0
        self.now = forced or (Plan.BACKLOG if behind > FAR_BEHIND * most else Plan.LIVE)

    def finished(self, behind: int) -> bool:
        """Take note of a finished batch, after which so many records were left; tell whether the plan changes."""
        self._far = self._far + 1 if behind > FAR_BEHIND * self._most else 0
        if self._forced is not None:
            return False
        if self.now is Plan.BACKLOG and behind < self._most:
            self.now = Plan.LIVE
            return True
        if self.now is Plan.LIVE and self._far >= PATIENCE:
            self.now = Plan.BACKLOG
            return True
        return False
