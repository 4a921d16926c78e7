"""The overview of `top`, from the store: whether everything is well, the groups, and the sums with the highest rate."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import open_reader
from tallystream_dashboards import formatting
from tallystream_dashboards.data.observed import read_observed
from tallystream_dashboards.data.problems import problems
from tallystream_dashboards.lag.formatting import group_json
from tallystream_dashboards.lag.reader import last_round_ms, read_groups
from tallystream_dashboards.terminal.lag import outdated
from tallystream_dashboards.terminal.sums import rate_of, read_sums, sum_json

if TYPE_CHECKING:
    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_dashboards.data.problems import Problem
    from tallystream_dashboards.data.sums import Metric
    from tallystream_dashboards.lag.state import GroupState


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
        with closing(open_reader(store)) as reader:
            return read_overview(reader, at_ms)
    except SinkUnavailableError as error:
        return Overview(at_ms, (f"The store can't be read: {error}",), readable=False)


def read_overview(reader: PointReader, at_ms: int) -> Overview:
    """Return the state at a time, epoch ms. Groups that are gone are left out.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    states = read_groups(reader, at_ms=at_ms)
    sums = sorted(read_sums(reader, at_ms=at_ms), key=lambda one: -(rate_of(one, at_ms) or 0))
    round_ms = last_round_ms(reader, at_ms=at_ms)
    observed = replace(read_observed(reader, end_ms=at_ms, until_ms=at_ms + 1), round_ms=round_ms)
    found = [_sentence(problem, at_ms) for problem in problems(states, observed, now_ms=at_ms)]
    if round_ms is None:
        found.append(outdated(None, at_ms))
    if not sums:
        found.append("The store has no sum yet: check that an application reports, and that the shipper runs.")
    return Overview(at_ms, tuple(found), tuple(state for state in states if not state.gone), tuple(sums))


def _sentence(problem: Problem, at_ms: int) -> str:
    since_ms = problem.since_ms
    since = "" if since_ms is None else f" for {formatting.duration((at_ms - since_ms) / 1000)}"
    return f"{problem.what}{since}: {problem.why}"
