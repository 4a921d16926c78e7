"""The instances of an app: living, ended or silent, since when, and their lives, by the points of `ship --rows`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from tallystream.ulid import ulid_ms
from tallystream_aggregator.instances import ENDED, LIVING, SILENT, state_of
from tallystream_aggregator.sinks.base import EVENTS, INSTANCE_PREFIX
from tallystream_dashboards.data.instances import MIN_SILENT_MS, newest_values, read_lives, read_values, silent_after_ms
from tallystream_dashboards.data.sums import REPORTER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tallystream_aggregator.instances import InstanceState
    from tallystream_aggregator.sinks.base import PointReader, Series
    from tallystream_dashboards.data.instances import Life
    from tallystream_dashboards.data.lines import Period
    from tallystream_dashboards.data.observed import AppInstances

_ORDER = (SILENT, LIVING, ENDED)

Value: TypeAlias = "tuple[dict[str, str], float | int | None]"
"""The tags and the value of a metric of an instance."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance of an app at a moment.

    It has been living since its newest life began, or ended or silent since its last report. `lives` counts those that
    reported in the period, `restarts` the events of the period; None: not known, because the store has no events.
    `values` are those of the chosen metric: the metric's own tags and the value.
    """

    name: str
    state: InstanceState
    since_ms: int
    last_ms: int
    lives: int
    restarts: int | None
    values: tuple[Value, ...] = ()


def read_instances(
    reader: PointReader, app: str, period: Period, *, numbers: AppInstances | None, metric: str | None = None
) -> list[Instance]:
    """Return the instances that reported in the period: the silent ones first, the ended ones last, then by name.

    No more are living than in the table's `numbers` (None: not known).
    With `metric` each has its values, with its lives in the period added up. Instances without a value are left out.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    names = reader.measurements()
    lives = _read_lives(reader, [name for name in names if name.startswith(INSTANCE_PREFIX)], app, period)
    restarts = _restarts(reader, app, period) if EVENTS in names else None
    values = {} if metric is None else newest_values(read_values(reader, metric, app, period))
    instances = [_instance(name, one, period.end_ms, restarts, values.get(name, ())) for name, one in lives.items()]
    if numbers is not None:
        instances = _at_most_living(instances, numbers.living, period.end_ms)
    shown = [one for one in instances if metric is None or one.name in values]
    return sorted(shown, key=lambda one: (_ORDER.index(one.state), one.name))


def _at_most_living(instances: Iterable[Instance], living: int, at_ms: int) -> list[Instance]:
    """Return the instances, of which those that reported longest ago are silent if more are living than `living`.

    The table knows the reporting intervals, but not yet a life or a report of the last seconds.
    """
    newest_first, old_ms = sorted(instances, key=lambda one: -one.last_ms), at_ms - MIN_SILENT_MS
    known = [one.name for one in newest_first if one.state == LIVING and one.since_ms < old_ms]
    silent = set(known[living:])
    return [
        replace(one, state=SILENT, since_ms=one.last_ms) if one.name in silent and one.last_ms < old_ms else one
        for one in newest_first
    ]


def _instance(
    name: str, lives: Mapping[str, Life], at_ms: int, restarts: Mapping[str, int] | None, values: Iterable[Value]
) -> Instance:
    newest = max(lives, key=lambda life: lives[life].last_ms)
    last_ms = lives[newest].last_ms
    is_final = any(one.final_ms == last_ms for one in lives.values())
    is_living = not is_final and at_ms - last_ms <= silent_after_ms(one.times_ms for one in lives.values())
    if restarts is not None:
        count: int | None = restarts.get(name, 0)
    else:
        count = 0 if len(lives) == 1 else None
    return Instance(
        name,
        state=state_of(is_living=is_living, is_final=is_final),
        since_ms=_began_ms(newest, lives[newest]) if is_living else last_ms,
        last_ms=last_ms,
        lives=len(lives),
        restarts=count,
        values=tuple(values),
    )


def _began_ms(life: str, reports: Life) -> int:
    """Return the time at which a life began: the one in its ULID, or else its first report in the period."""
    try:
        return ulid_ms(life) if life else reports.first_ms
    except ValueError:
        return reports.first_ms


def _read_lives(reader: PointReader, names: Iterable[str], app: str, period: Period) -> dict[str, dict[str, Life]]:
    """Return the lives of each instance, by the metric that it reported last: reading all metrics takes long."""
    newest: dict[str, tuple[int, bool, str]] = {}
    for name in names:
        of_reporter = name.startswith(INSTANCE_PREFIX + REPORTER)
        for one in _newest(reader, name, app, period.until_ms):
            report = (one.times_ms[-1], of_reporter, name)
            instance = one.tags.get("instance", "")
            newest[instance] = max(report, newest.get(instance, report))
    chosen = {instance: name for instance, (ts_ms, _, name) in newest.items() if ts_ms >= period.start_ms}
    return {
        instance: lives
        for name in sorted(set(chosen.values()))
        for (_, instance), lives in read_lives(reader, name.removeprefix(INSTANCE_PREFIX), {"app": app}, period).items()
        if chosen.get(instance) == name
    }


def _newest(reader: PointReader, name: str, app: str, until_ms: int) -> Iterator[Series]:
    """Yield the newest life of each series of a metric, and the newest count, as the short form has no life."""
    for fields, tags in ((("life",), {}), (("count",), {"metric_type": "counter"})):
        yield from reader.read(
            name, fields, start_ms=until_ms - 1, end_ms=until_ms, tags={"app": app, **tags}, last_before=True
        )


def _restarts(reader: PointReader, app: str, period: Period) -> Counter[str]:
    """Return the number of restarts of each instance in the period."""
    tags = {"app": app, "kind": "restart"}
    series = reader.read(EVENTS, ("text",), start_ms=period.start_ms, end_ms=period.until_ms, tags=tags)
    restarts: Counter[str] = Counter()
    for one in series:
        restarts[one.tags.get("instance", "")] += len(one.times_ms)
    return restarts
