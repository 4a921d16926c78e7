"""`tallystream alert`: post what is not well to an Alertmanager, by the state in the store.

The body is that of `POST /api/v2/alerts` in Alertmanager's OpenAPI specification: a JSON list of alerts.
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import urllib3

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.shutdown import stop_on_signals
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.http import connection_problem, is_http_url
from tallystream_aggregator.sinks.stores import open_store
from tallystream_dashboards.data.consumers import read_record_problems
from tallystream_dashboards.data.groups import read_groups_now
from tallystream_dashboards.data.lines import Period
from tallystream_dashboards.data.observed import read_observed
from tallystream_dashboards.data.problems import THRESHOLDS, Problem, action, problems
from tallystream_dashboards.exit_codes import GOOD, UNKNOWN
from tallystream_dashboards.grafana.generate import alert_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_aggregator.sinks.stores import StoreSettings
    from tallystream_dashboards.grafana.settings import Thresholds

log = logging.getLogger(__name__)

TIMEOUT_S = 15.0
MIN_EVERY_S, MAX_EVERY_S = 1.0, 120.0
"""An Alertmanager ends an alert that it has not received again for `resolve_timeout`, five minutes by default."""

_NO_LAG = Problem("No lag has been collected", "The store has no round of the lag collector.", "collector-down")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Settings of `tallystream alert`.

    Raises:
        ConfigError: `webhook` is not an HTTP URL, or has a user, or `every_s` is out of its bounds.
    """

    store: StoreSettings
    webhook: str
    every_s: float = 30.0
    once: bool = False
    thresholds: Thresholds = THRESHOLDS

    def __post_init__(self) -> None:
        if "@" in self.webhook:
            raise ConfigError("--webhook", "***", "leave user and password out")
        if not is_http_url(self.webhook):
            remedy = "give a URL, as in http://alertmanager:9093/api/v2/alerts"
            raise ConfigError("--webhook", self.webhook, remedy)
        if not MIN_EVERY_S <= self.every_s <= MAX_EVERY_S:
            raise ConfigError("--every", self.every_s, "give seconds from 1 to 120")


class Alerts:
    """The alerts that fire, and those that have ended and that the webhook does not know yet, by their labels.

    One fires when its problem has lasted as long as the rule says, by `since_ms` or by the readings. If these are not
    `repeated`, a problem without `since_ms` fires at once.
    """

    def __init__(self, *, repeated: bool = True) -> None:
        self._repeated = repeated
        self._pending: dict[frozenset[tuple[str, str]], int] = {}
        self._firing: dict[frozenset[tuple[str, str]], dict[str, Any]] = {}
        self._ended: dict[frozenset[tuple[str, str]], dict[str, Any]] = {}

    def update(self, found: Iterable[Problem], now_ms: int) -> list[dict[str, Any]]:
        """Return all alerts after a reading. One that began earlier keeps its begin; an ended one has an end."""
        before, self._firing = self._firing, {}
        pending, self._pending = self._pending, {}
        for problem in found:
            if not problem.has_alert:
                continue
            alert = _alert(problem, now_ms)
            key = frozenset(alert["labels"].items())
            first_ms = now_ms if problem.since_ms is None else min(now_ms, problem.since_ms)
            self._pending[key] = min(first_ms, pending.get(key, first_ms))
            waits = self._repeated or problem.since_ms is not None
            if key in before or not waits or now_ms - self._pending[key] >= alert_rules()[problem.slug].for_s * 1000:
                begun = before.pop(key, None)
                self._firing.setdefault(key, alert if begun is None else alert | {"startsAt": begun["startsAt"]})
                self._ended.pop(key, None)
        for key, alert in before.items():
            # An Alertmanager refuses an alert that ends before it begins, as after the clock was set back.
            self._ended[key] = alert | {"endsAt": max(_time(now_ms), alert["startsAt"])}
        return [*self._firing.values(), *self._ended.values()]

    def accepted(self) -> None:
        """Record that the webhook has the alerts."""
        self._ended.clear()


def run(settings: AlertSettings, *, clock: Callable[[], float] = time.time) -> int:
    """Post the alerts every `every_s` seconds until SIGTERM or Ctrl-C, then return 0.

    With `once`, post them once, and return 0, or 3 if the store can't be read. If the store can't be read, what fired
    fires on, and with it the alert about the store. What the webhook does not take is posted again the next time.
    Must be called in the main thread.

    Raises:
        ConfigError: the store's settings can't work.
        TallystreamError: with `once`, the webhook did not take the alerts.
    """
    alerts, found, failed = Alerts(repeated=not settings.once), list[Problem](), False
    with stop_on_signals() as stop:
        while True:
            now_ms, code, away = round(clock() * 1000), GOOD, list[Problem]()
            try:
                with closing(open_store(settings.store)) as reader:
                    found = read_problems(reader, now_ms, settings.thresholds)
            except SinkUnavailableError as error:
                code, away = UNKNOWN, [_unreadable(error)]
            try:
                _post(settings.webhook, alerts.update([*away, *found], now_ms))
                alerts.accepted()
                if failed:
                    log.warning("the webhook takes the alerts again")
                failed = False
            except TallystreamError as error:
                if settings.once:
                    raise
                if not failed:
                    log.warning("%s They are posted again every %g s.", error, settings.every_s)
                failed = True
            if settings.once:
                return code
            if stop.wait(settings.every_s):
                return GOOD


def read_problems(reader: PointReader, now_ms: int, limits: Thresholds) -> list[Problem]:
    """Return what is not well. Without a round of the lag collector, only that is known, and what is with records.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    groups = read_groups_now(reader, Period(now_ms, now_ms, now_ms))
    observed = read_observed(reader, end_ms=now_ms, until_ms=now_ms + 1)
    found = [_NO_LAG] if groups.round_ms is None else problems(groups, observed, now_ms=now_ms, limits=limits)
    return [*found, *read_record_problems(reader, now_ms=now_ms, limits=limits)]


def _unreadable(error: SinkUnavailableError) -> Problem:
    return Problem("The store can't be read", f"{error}.".replace("..", "."), "sink-behind", severity="critical")


def _alert(problem: Problem, now_ms: int) -> dict[str, Any]:
    rule = alert_rules()[problem.slug]
    of_what = {name: problem.details[name] for name in ("group", "app", "metric") if name in problem.details}
    return {
        "labels": {**rule.labels, "alertname": rule.name, "severity": problem.severity, **of_what},
        "annotations": {
            "summary": problem.what,
            "description": f"{problem.why} What to do: {action([problem])}",
            "runbook_url": rule.runbook_url,
        },
        "startsAt": _time(now_ms if problem.since_ms is None else min(problem.since_ms, now_ms)),
    }


def _time(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _post(url: str, alerts: list[dict[str, Any]]) -> None:
    if not alerts:
        return
    try:
        # A redirected POST would become a GET, which would look like a success.
        answer = urllib3.request(
            "POST",
            url,
            body=json.dumps(alerts).encode(),
            headers={"Content-Type": "application/json"},
            redirect=False,
            retries=False,
            timeout=TIMEOUT_S,
        )
    except urllib3.exceptions.HTTPError as error:
        raise TallystreamError(f"The webhook did not take the alerts: {connection_problem(error)}.") from None
    if not 200 <= answer.status < 300:
        raise TallystreamError(f"The webhook did not take the alerts: it answered {answer.status}.")
