"""What matters first, from the store: whether everything is well, the groups worst first, and the fastest sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import open_reader
from tallystream_dashboards import formatting
from tallystream_dashboards.lag.cli import outdated
from tallystream_dashboards.lag.formatting import group_json, lag_range
from tallystream_dashboards.lag.reader import last_round_ms, read_groups
from tallystream_dashboards.lag.status import Status
from tallystream_dashboards.sums_table import rate_of, read_sums, sum_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_dashboards.lag.state import GroupState
    from tallystream_dashboards.page.data.sums import Metric


@dataclass(frozen=True, slots=True)
class Overview:
    """The state at a moment: what is not well as sentences, the groups, worst first, and the sums, fastest first.

    If the store could not be read, the sentence says so, and there are no groups and no sums.
    """

    at_ms: int
    problems: tuple[str, ...]
    groups: tuple[GroupState, ...] = ()
    sums: tuple[Metric, ...] = ()
    readable: bool = True

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object. Times are epoch ms."""
        return {
            "at_ms": self.at_ms,
            "well": not self.problems,
            "problems": list(self.problems),
            "groups": [group_json(state, partitions=False) for state in self.groups],
            "sums": [sum_json(one, rate_of(one, self.at_ms)) for one in self.sums],
        }


def overview(store: StoreSettings, at_ms: int) -> Overview:
    """Return the state in a store at a time, epoch ms.

    Raises:
        ConfigError: the store's settings can't work.
    """
    try:
        reader = open_reader(store)
        try:
            return read_overview(reader, at_ms)
        finally:
            reader.close()
    except SinkUnavailableError as error:
        return Overview(at_ms, (f"The store can't be read: {error}",), readable=False)


def read_overview(reader: PointReader, at_ms: int) -> Overview:
    """Return the state at a time, epoch ms. Groups that are gone are left out.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    groups = [state for state in read_groups(reader, at_ms=at_ms) if not state.gone]
    sums = sorted(read_sums(reader, at_ms=at_ms), key=lambda one: -(rate_of(one, at_ms) or 0))
    stale = outdated(last_round_ms(reader, at_ms=at_ms), at_ms)
    problems = [*([stale] if stale else []), *_problems(groups, at_ms)]
    if not sums:
        problems.append("The store has no sum yet: check that an application reports, and that the shipper runs.")
    return Overview(at_ms, tuple(problems), tuple(groups), tuple(sums))


def _problems(groups: Sequence[GroupState], at_ms: int) -> list[str]:
    """Return a sentence for each group that is WARN or ERR, worst first."""
    return [
        f"{state.group} is {state.status_name}{_since(state, at_ms)}, lag {lag_range(state)}: {state.evaluation.reason}"
        for state in groups
        if state.evaluation.status in (Status.WARN, Status.ERR)
    ]


def _since(state: GroupState, at_ms: int) -> str:
    return "" if state.since_ms is None else f" for {formatting.duration((at_ms - state.since_ms) / 1000)}"
