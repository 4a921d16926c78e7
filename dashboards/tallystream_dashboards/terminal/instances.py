"""`tallystream instances [APP]`: print the apps, or the instances of one, from the store, as a table or as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tallystream.errors import ConfigError
from tallystream_dashboards import formatting
from tallystream_dashboards.data.instance_states import Instance, read_instances
from tallystream_dashboards.data.lines import RANGES, Period
from tallystream_dashboards.data.observed import read_numbers
from tallystream_dashboards.exit_codes import GOOD
from tallystream_dashboards.printable import printable
from tallystream_dashboards.terminal.show import Shown, TableSettings, aligned, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.data.observed import AppInstances

_COLUMNS = ("INSTANCE", "STATE", "SINCE", "LAST REPORT", "LIVES", "RESTARTS")
_RIGHT = frozenset({2, 3, 4, 5})


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesSettings(TableSettings):
    """Settings of `tallystream instances`, and those of every table.

    Raises:
        ConfigError: a number is out of its bounds, both `watch` and `at_ms` are set, `range` is not in `RANGES`, or a
            `metric` has no `app`.
    """

    app: str | None = None
    metric: str | None = None
    range: str = "1h"

    def __post_init__(self) -> None:
        TableSettings.__post_init__(self)
        if self.range not in RANGES:
            raise ConfigError("--range", self.range, f"give one of {', '.join(RANGES)}")
        if self.metric is not None and self.app is None:
            raise ConfigError("--metric", self.metric, "give the app, too")

    def shown(self, reader: PointReader, at_ms: int) -> Shown:
        """Return a line for each app, or for each instance of one. The exit code is 0 if there are any."""
        numbers = read_numbers(reader, end_ms=at_ms, until_ms=at_ms + 1)
        if self.app is None:
            return _apps(numbers)
        period = Period(at_ms - RANGES[self.range] * 1000, at_ms, at_ms + 1)
        of_app = next((one for one in numbers if one.name == self.app), None)
        found = read_instances(reader, self.app, period, numbers=of_app, metric=self.metric)
        apps = [one.name for one in numbers]
        if not found and apps and self.app not in apps:
            return Shown.nothing(f"The store has no app {self.app!r}. {did_you_mean(self.app, apps)}")
        if not found:
            return Shown.nothing(_nothing(self))
        summary = "" if of_app is None else f"{printable(of_app.name)}: {of_app.text}\n"
        return Shown([_json(one, self) for one in found], _table(found, at_ms, self) + summary, "", GOOD)


def _apps(numbers: Sequence[AppInstances]) -> Shown:
    if not numbers:
        return Shown.nothing("The store has no app yet. Check that an application reports, and that the shipper runs.")
    rows = [(one.name, *map(formatting.number, (one.living, one.ended, one.silent))) for one in numbers]
    objects = [{"app": one.name, "living": one.living, "ended": one.ended, "silent": one.silent} for one in numbers]
    return Shown(objects, aligned([("APP", "LIVING", "ENDED", "SILENT"), *rows], right={1, 2, 3}), "", GOOD)


def _nothing(settings: InstancesSettings) -> str:
    metric = f" with the metric {settings.metric!r}" if settings.metric is not None else ""
    return (
        f"The store has no instance of the app {settings.app!r}{metric} in the last {settings.range}. Check the name, "
        "that an instance reports, and that the shipper runs with --rows."
    )


def _table(found: Sequence[Instance], at_ms: int, settings: InstancesSettings) -> str:
    rows = [
        (
            one.name,
            one.state,
            _ago(at_ms, one.since_ms),
            _ago(at_ms, one.last_ms),
            formatting.number(one.lives),
            formatting.number(one.restarts),
            *([_values(one)] if settings.metric is not None else []),
        )
        for one in found
    ]
    head = (*_COLUMNS, *([settings.metric] if settings.metric is not None else []))
    return aligned([head, *rows], right=_RIGHT)


def _ago(at_ms: int, time_ms: int) -> str:
    return f"{formatting.duration((at_ms - time_ms) / 1000)} ago"


def _values(one: Instance) -> str:
    values = [(", ".join(f"{key}={tag}" for key, tag in tags.items()), value) for tags, value in one.values]
    return "; ".join(
        f"{tags}: {formatting.number(value)}" if tags else formatting.number(value) for tags, value in values
    )


def _json(one: Instance, settings: InstancesSettings) -> dict[str, Any]:
    """Return an instance as a JSON object. Times are epoch ms, and null stands for what is not known."""
    values = [{"tags": tags, "value": value} for tags, value in one.values]
    return {
        "app": settings.app,
        "instance": one.name,
        "state": one.state,
        "since_ms": one.since_ms,
        "last_report_ms": one.last_ms,
        "lives": one.lives,
        "restarts": one.restarts,
        **({"metric": settings.metric, "values": values} if settings.metric is not None else {}),
    }
