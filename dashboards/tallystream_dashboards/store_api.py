"""`/v1/sums`, `/v1/groups` and the others: over HTTP what the commands print with `--json`."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

from tallystream.errors import ConfigError
from tallystream_aggregator.http_server import Response, json_response
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import open_store
from tallystream_aggregator.times import parse_time_ms

# The commands are imported when they are first used: they double the memory of a collector that nobody asks.
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_dashboards.terminal.show import TableSettings

    Objects = Sequence[dict[str, Any]]


MAX_CHARACTERS = 1_025
"""The longest value: the name of an app, a slash, and that of a metric. A pattern takes the square of its length."""


class QueryError(ValueError):
    """A query string that can't be answered. The message names the parameter and says what to do."""


class _Route(NamedTuple):
    """A command by its parameters, and the answer as an object that has the command's own objects."""

    names: tuple[str, ...]
    settings: Callable[[StoreSettings, dict[str, str]], TableSettings]
    answer: Callable[[int, Objects], dict[str, Any]]


def routes(store: StoreSettings, *, clock: Callable[[], float] = time.time) -> dict[str, Callable[[str], Response]]:
    """Return for each path a function from the query string to the answer, which is read from the store.

    `clock` returns seconds (epoch).
    """
    return {path: partial(_respond, route, store, clock) for path, route in _ROUTES.items()}


def _respond(route: _Route, store: StoreSettings, clock: Callable[[], float], query: str) -> Response:
    try:
        found = _parameters(query, route.names)
        chosen_ms = _at_ms(found)
        settings = route.settings(store, found)
    except QueryError as error:
        return json_response(400, {"error": str(error)})
    shown_ms = round(clock() * 1000) if chosen_ms is None else chosen_ms
    try:
        with closing(open_store(store)) as reader:
            shown = settings.shown(reader, shown_ms)
        problem = {"problem": shown.problem} if shown.problem else {}
        return json_response(200, route.answer(shown_ms, shown.objects) | problem)
    except (SinkUnavailableError, ConfigError) as error:
        return json_response(503, {"error": str(error)})


def _parameters(query: str, known: Sequence[str]) -> dict[str, str]:
    """Return the parameters by name. An empty one counts as not given, and of a repeated one the last counts.

    Raises:
        QueryError: a parameter is not `known`, or longer than any name.
    """
    found = dict(parse_qsl(query, keep_blank_values=True))
    for name, text in found.items():
        if len(text) > MAX_CHARACTERS:
            raise QueryError(f"a parameter has {len(text)} characters; at most {MAX_CHARACTERS} are a name")
        if name not in known:
            raise QueryError(f"{name!r} is no parameter of this path, which has {', '.join(known) or 'none'}")
    return {name: text for name, text in found.items() if text}


def _at_ms(found: dict[str, str]) -> int | None:
    """Return the time of the parameter `at` in epoch ms; None if it is not given.

    Raises:
        QueryError: it is not a time.
    """
    text = found.get("at")
    try:
        return None if text is None else parse_time_ms(text)
    except ValueError:
        raise QueryError(f"at: {text!r} is not a time; give one in UTC, as in 2026-11-20T03:12") from None


def _listed(name: str) -> Callable[[int, Objects], dict[str, Any]]:
    return lambda shown_ms, objects: {"at_ms": shown_ms, name: objects}


def _sums(store: StoreSettings, found: dict[str, str]) -> TableSettings:
    from tallystream_dashboards.terminal.sums import SumsSettings

    return SumsSettings(store=store, pattern=found.get("name"), app=found.get("app"))


def _instances(store: StoreSettings, found: dict[str, str]) -> TableSettings:
    from tallystream_dashboards.terminal.instances import InstancesSettings

    if "app" not in found:
        raise QueryError("app is missing; give the name of an app, as in ?app=orders")
    return InstancesSettings(store=store, app=found["app"], metric=found.get("metric"))


def _groups(store: StoreSettings, found: dict[str, str]) -> TableSettings:
    from tallystream_dashboards.terminal.lag import ShowSettings

    return ShowSettings(store=store, group=found.get("group"), at_ms=_at_ms(found))


def _compare(store: StoreSettings, found: dict[str, str]) -> TableSettings:
    from tallystream_dashboards.terminal.compare import CompareSettings

    if "sent" in found and "processed" not in found:
        raise QueryError("processed is missing; give the counter of what was processed beside that of what was sent")
    names = tuple(found[name] for name in ("sent", "processed") if name in found)
    if "app" in found and (names or "group" in found):
        raise QueryError("app selects from all counters; leave it out, and give a counter of one app as APP/NAME")
    return CompareSettings(store=store, names=names, group=found.get("group"), app=found.get("app"))


def _problems(store: StoreSettings, _: dict[str, str]) -> TableSettings:
    from tallystream_dashboards.terminal.top import ProblemsSettings

    return ProblemsSettings(store=store)


def _verdict(_: int, objects: Objects) -> dict[str, Any]:
    return objects[0]


_ROUTES = {
    "/v1/sums": _Route(("app", "name", "at"), _sums, _listed("sums")),
    "/v1/instances": _Route(("app", "metric", "at"), _instances, _listed("instances")),
    "/v1/compare": _Route(("app", "sent", "processed", "group", "at"), _compare, _listed("comparisons")),
    "/v1/groups": _Route(("group", "at"), _groups, _listed("groups")),
    "/v1/problems": _Route((), _problems, _verdict),
}
