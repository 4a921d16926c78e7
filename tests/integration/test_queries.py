"""docs/queries.md: each query, as it stands there, on a real InfluxDB filled by the shipper's own code."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from support.queries import Filled, Query, ask_flux, ask_influxql, column, queries
from support.stores import influx_bucket, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.influx import Influx
    from tallystream_aggregator.sinks.stores import StoreSettings

pytestmark = pytest.mark.integration

PAGE = queries()


@pytest.fixture(scope="module")
def filled(influxdb: Influx) -> Iterator[tuple[StoreSettings, Filled]]:
    """A bucket with ten minutes of everything, and what it was filled with."""
    with influx_bucket(influxdb, f"queries {uuid.uuid4().hex}") as store:
        made = Filled()
        assert write(store, made.points) == 0
        yield store, made


def _ms(value: Any) -> int:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else int(value)


class Told:
    """An answer's rows, whichever language it was asked in: `name` is what InfluxQL calls the value."""

    def __init__(self, rows: list[dict[str, Any]], *, flux: bool) -> None:
        self.rows, self.flux = rows, flux

    def values(self, name: str) -> list[Any]:
        """The values."""
        return column(self.rows, "_value" if self.flux else name)

    def by(self, name: str, *tags: str) -> dict[Any, Any]:
        """The values by tag, or tags."""
        return dict(zip(column(self.rows, *tags), self.values(name), strict=True))

    def over_time(self, name: str) -> dict[int, Any]:
        """The values by time, in ms."""
        return dict(zip(map(_ms, column(self.rows, "_time" if self.flux else "time")), self.values(name), strict=True))


def _period(told: Told, made: Filled) -> tuple[object, object]:
    first, last = (made.total("orders", moment) for moment in (made.begin_ms, made.end_ms))
    assert last - first == 333 * (50 + 7)  # seconds, times what two topics grow in one
    return told.values("sum"), [last - first] if told.flux else [first, last]


def _worst(told: Told, made: Filled) -> tuple[object, object]:
    seconds = {state.group: state.time_lag.seconds if state.time_lag else 0.0 for state in made.rounds.states}
    worst = max(seconds, key=lambda group: seconds[group])
    assert seconds[worst] > 0
    return told.by("top", "group"), {worst: seconds[worst]}


def _statuses(told: Told, made: Filled) -> tuple[object, object]:
    statuses = {state.group: state.evaluation.status.name for state in made.rounds.states}
    assert len(set(statuses.values())) > 1
    return told.by("last", "group"), statuses


CHECKS: dict[str, Callable[[Told, Filled], tuple[object, object]]] = {
    "The total now": lambda told, made: (told.values("sum"), [made.total("orders")]),
    "The rate per minute": lambda told, made: (told.over_time("sum"), made.minutes()),
    "Totals by app": lambda told, made: (
        told.by("sum", "app"),
        {app: made.total(app) for app in ("orders", "billing")},
    ),
    "Living instances": lambda told, made: (
        told.by("last", "app", "topic"),
        {(app, topic): 2 for app, topic, _ in made.TOPICS},
    ),
    "Restarts, as annotations for a graph": lambda told, made: (told.over_time("text"), dict(made.restarts)),
    "The 99th percentile over time": lambda told, made: (told.over_time("max"), made.worst()),
    "The total at a moment": lambda told, made: (told.values("sum"), [made.total("orders", made.begin_ms)]),
    "What was processed in a period": _period,
    "The consumer group with the oldest unread record": _worst,
    "The status of every group now": _statuses,
}
"""By title: what an answer says, and what plain arithmetic over the points says."""


@pytest.mark.parametrize("query", PAGE, ids=[query.title for query in PAGE])
def test_a_query_of_the_page_answers_what_is_true(query: Query, filled: tuple[StoreSettings, Filled]) -> None:
    """In Flux and in InfluxQL: the answer is that of plain arithmetic over the points."""
    store, made = filled
    for rows, flux in ((ask_flux(query, store, made), True), (ask_influxql(query, store, made), False)):
        said, true = CHECKS[query.title](Told(rows, flux=flux), made)
        assert said == true, "Flux" if flux else "InfluxQL"


def test_there_are_ten() -> None:
    """The page says so, and each has a check."""
    assert [query.title for query in PAGE] == list(CHECKS)
    assert len(PAGE) == 10
