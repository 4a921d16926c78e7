"""Lives that took records before the work, and ended without a report of having counted them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.base import INSTANCE_PREFIX
from tallystream_dashboards.data.compare import Died
from tallystream_dashboards.data.instances import silent_after_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_aggregator.sinks.base import PointReader, Series
    from tallystream_dashboards.data.lines import Period

Tags = tuple[tuple[str, str], ...]


def read_died(
    reader: PointReader, counter: str, taken: str, tags: Mapping[str, str], period: Period
) -> tuple[Died, ...]:
    """Return the lives that ended in the period, by the points of `ship --rows`, the one with the most records first.

    A life has ended if a later one of its instance has reported, or if the instance is silent. A new life of the same
    process may count what an earlier one took.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    counted, took = (_read(reader, name, tags, period) for name in (counter, taken))
    of_instance: dict[tuple[str, str], dict[str, list[int]]] = {}
    for (app, instance, life), times_ms in took.times_ms.items():
        of_instance.setdefault((app, instance), {})[life] = sorted(times_ms)
    found = []
    for (app, instance), lives in of_instance.items():
        newest = max(lives, key=lambda life: lives[life][-1])
        is_silent = period.end_ms - lives[newest][-1] > silent_after_ms(lives.values())
        unfinished = {life: took.count(app, instance, life) - counted.count(app, instance, life) for life in lives}
        for life, number in unfinished.items():
            unreported = min(number, sum(unfinished.values()))
            if unreported > 0 and (life != newest or is_silent):
                found.append(Died(instance, lives[life][-1], unreported))
    return tuple(sorted(found, key=lambda one: (-one.unreported, one.instance)))


class _Counts:
    """The counts of the lives of instances, and when they reported."""

    def __init__(self) -> None:
        self.times_ms: dict[tuple[str, str, str], list[int]] = {}
        self._newest: dict[tuple[str, str, str], dict[Tags, int]] = {}

    def add(self, tags: Mapping[str, str], life: str, time_ms: int, count: int) -> None:
        key = (tags.get("app", ""), tags.get("instance", ""), life)
        self.times_ms.setdefault(key, []).append(time_ms)
        self._newest.setdefault(key, {})[tuple(sorted(tags.items()))] = count

    def count(self, app: str, instance: str, life: str) -> int:
        return sum(self._newest.get((app, instance, life), {}).values())


def _read(reader: PointReader, name: str, tags: Mapping[str, str], period: Period) -> _Counts:
    fields: dict[Tags, dict[str, Series]] = {}
    for one in reader.read(
        INSTANCE_PREFIX + name,
        ("count", "life"),
        start_ms=period.start_ms,
        end_ms=period.until_ms,
        tags={**tags, "metric_type": "counter"},
        last_before=True,
    ):
        fields.setdefault(tuple(sorted(one.tags.items())), {})[one.field] = one
    counts = _Counts()
    for series in fields.values():
        count, life = series.get("count"), series.get("life")
        lives = {} if life is None else dict(zip(life.times_ms, life.values, strict=True))
        for time_ms, value in [] if count is None else zip(count.times_ms, count.values, strict=True):
            counts.add(count.tags if count else {}, str(lives.get(time_ms, "")), time_ms, int(value))
    return counts
