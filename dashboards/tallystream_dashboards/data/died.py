"""Lives that ended without a report of what they had counted: of consumers, by what they took, and of producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_dashboards.data.compare import Died
from tallystream_dashboards.data.instances import read_lives, silent_after_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.instances import Life, Lives
    from tallystream_dashboards.data.lines import Period


def read_died(
    reader: PointReader, counter: str, taken: str, tags: Mapping[str, str], period: Period
) -> tuple[Died, ...]:
    """Return the lives that took records and ended before they counted them, the one with the most records first.

    They are known by the points of `ship --rows` in the period. A new life of the same process may count what an
    earlier one took.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    counted, took = (_read(reader, name, tags, period) for name in (counter, taken))
    found = []
    for (app, instance), lives in took.items():
        reported = counted.get((app, instance), {})
        unfinished = {
            life: one.count - (reported[life].count if life in reported else 0) for life, one in lives.items()
        }
        for life in _ended(lives, period.end_ms):
            unreported = min(unfinished[life], sum(unfinished.values()))
            if unreported > 0:
                found.append(Died(instance, lives[life].last_ms, unreported))
    return tuple(sorted(found, key=lambda one: (-one.unreported, one.instance)))


def read_died_sending(reader: PointReader, counter: str, tags: Mapping[str, str], period: Period) -> tuple[Died, ...]:
    """Return the lives of producers that ended without a final report, by the same points.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    return tuple(
        Died(instance, lives[life].last_ms)
        for (_, instance), lives in _read(reader, counter, tags, period).items()
        for life in _ended(lives, period.end_ms)
        if not lives[life].final_ms
    )


def _ended(lives: Mapping[str, Life], at_ms: int) -> Iterator[str]:
    """Yield the lives of an instance after whose last report another one began, or that are silent.

    Lives of which each reports while the other does are processes that share the instance.
    """
    newest_ms = max(one.first_ms for one in lives.values())
    silent_ms = silent_after_ms(one.times_ms for one in lives.values())
    for life, one in lives.items():
        if one.last_ms < newest_ms or at_ms - one.last_ms > silent_ms:
            yield life


def _read(reader: PointReader, counter: str, tags: Mapping[str, str], period: Period) -> Lives:
    return read_lives(reader, counter, {**tags, "metric_type": "counter"}, period, last_before=True)
