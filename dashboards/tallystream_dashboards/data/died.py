"""Lives that ended without a report of what they had counted: of consumers, by what they took, and of producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.base import INSTANCE_PREFIX
from tallystream_dashboards.data.compare import Died
from tallystream_dashboards.data.instances import silent_after_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tallystream_aggregator.sinks.base import PointReader, Series
    from tallystream_dashboards.data.lines import Period

Tags = tuple[tuple[str, str], ...]


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
    for (app, instance), lives in took.instances().items():
        unfinished = {life: took.count(app, instance, life) - counted.count(app, instance, life) for life in lives}
        for life in _ended(lives, period.end_ms):
            unreported = min(unfinished[life], sum(unfinished.values()))
            if unreported > 0:
                found.append(Died(instance, lives[life][-1], unreported))
    return tuple(sorted(found, key=lambda one: (-one.unreported, one.instance)))


def read_died_sending(reader: PointReader, counter: str, tags: Mapping[str, str], period: Period) -> tuple[Died, ...]:
    """Return the lives of producers that ended without a final report, by the same points.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    sent = _read(reader, counter, tags, period)
    return tuple(
        Died(instance, lives[life][-1])
        for (app, instance), lives in sent.instances().items()
        for life in _ended(lives, period.end_ms)
        if (app, instance, life) not in sent.final
    )


def _ended(lives: Mapping[str, Sequence[int]], at_ms: int) -> Iterator[str]:
    """Yield the lives of an instance after whose last report another one began, or that are silent.

    Lives of which each reports while the other does are processes that share the instance.
    """
    newest_ms = max(times_ms[0] for times_ms in lives.values())
    silent_ms = silent_after_ms(lives.values())
    for life, times_ms in lives.items():
        if times_ms[-1] < newest_ms or at_ms - times_ms[-1] > silent_ms:
            yield life


class _Counts:
    """The counts of the lives of instances, when they reported, and which of them had a final report."""

    def __init__(self) -> None:
        self.final: set[tuple[str, str, str]] = set()
        self._times_ms: dict[tuple[str, str, str], set[int]] = {}
        self._newest: dict[tuple[str, str, str], dict[Tags, int]] = {}

    def add(self, tags: Mapping[str, str], life: str, time_ms: int, count: int, *, is_final: bool) -> None:
        key = (tags.get("app", ""), tags.get("instance", ""), life)
        self._times_ms.setdefault(key, set()).add(time_ms)
        self._newest.setdefault(key, {})[tuple(sorted(tags.items()))] = count
        if is_final:
            self.final.add(key)

    def instances(self) -> dict[tuple[str, str], dict[str, list[int]]]:
        """Return the ascending times of the reports of each life, by app and instance."""
        found: dict[tuple[str, str], dict[str, list[int]]] = {}
        for (app, instance, life), times_ms in self._times_ms.items():
            found.setdefault((app, instance), {})[life] = sorted(times_ms)
        return found

    def count(self, app: str, instance: str, life: str) -> int:
        return sum(self._newest.get((app, instance, life), {}).values())


def _read(reader: PointReader, name: str, tags: Mapping[str, str], period: Period) -> _Counts:
    fields: dict[Tags, dict[str, Series]] = {}
    for one in reader.read(
        INSTANCE_PREFIX + name,
        ("count", "life", "final"),
        start_ms=period.start_ms,
        end_ms=period.until_ms,
        tags={**tags, "metric_type": "counter"},
        last_before=True,
    ):
        fields.setdefault(tuple(sorted(one.tags.items())), {})[one.field] = one
    counts = _Counts()
    for series in fields.values():
        count, life, final = (series.get(field) for field in ("count", "life", "final"))
        if count is None:
            continue
        lives = {} if life is None else dict(zip(life.times_ms, life.values, strict=True))
        for time_ms, value in zip(count.times_ms, count.values, strict=True):
            is_final = final is not None and time_ms in final.times_ms
            counts.add(count.tags, str(lives.get(time_ms, "")), time_ms, int(value), is_final=is_final)
    return counts
