"""`tallystream alert`: what is posted to an Alertmanager, and when an alert ends."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.http_stub import HttpStub, Request, Response
from support.lag import Rounds, group, round_of
from support.printed import NOW_MS, position
from support.stores import write
from tallystream.errors import TallystreamError
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_dashboards.alerts import Alerts, AlertSettings, run
from tallystream_dashboards.data.problems import Problem
from tallystream_dashboards.exit_codes import UNKNOWN
from tallystream_dashboards.grafana.settings import Thresholds

AWAY = StoreSettings("influxdb", "http://127.0.0.1:1", token="t", org="o", bucket="b")
OUTDATED = Problem("No lag has been collected for 6 min", "The lag is old.", "collector-down")


def behind(group: str, why: str = "It is late.") -> Problem:
    return Problem(f"Group {group} is late", why, "lag-seconds", since_ms=NOW_MS - 121_000, details={"group": group})


class Alertmanager:
    """An Alertmanager that keeps what is posted, and calls `on_post` with the number of posts."""

    def __init__(self, on_post: Callable[[int], int] = lambda _: 200) -> None:
        self.requests: list[Request] = []
        self._on_post = on_post
        self.stub = HttpStub(self._answer)

    def _answer(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(self._on_post(len(self.requests)))

    @property
    def alerts(self) -> list[list[dict[str, Any]]]:
        """The alerts of each post."""
        return [json.loads(one.body) for one in self.requests]


def settings(store: StoreSettings, stub: HttpStub, **options: Any) -> AlertSettings:
    return AlertSettings(store=store, webhook=f"{stub.url}/api/v2/alerts", **options)


@pytest.fixture
def store(tmp_path: Path) -> StoreSettings:
    return StoreSettings.parse(f"local:{tmp_path / 'store.db'}", retention_days=0)


def fill(store: StoreSettings, rounds: Rounds, seconds: range, committed: Callable[[int], int]) -> None:
    """Write the rounds of these seconds, in which 1,000 records a second are produced."""
    points = []
    for second in seconds:
        one = group("billing", (committed(second), second * 1_000), members=0)
        points += rounds.points(round_of(one), NOW_MS + second * 1_000)
    assert write(store, points) == 0


def test_a_group_that_has_stopped_fires_and_ends(store: StoreSettings) -> None:
    """It is posted in each round as Alertmanager's API takes it, and once more with its end. SIGTERM ends the command.

    The name and the labels are those of the rule for Prometheus.
    """
    rounds, now_s = Rounds(), 300
    fill(store, rounds, range(301), lambda second: min(second, 100) * 1_000)

    def on_post(number: int) -> int:
        nonlocal now_s
        if number == 1:
            now_s = 600
            fill(store, rounds, range(301, 601), lambda second: second * 1_000)
        else:
            os.kill(os.getpid(), signal.SIGTERM)
        return 200

    webhook = Alertmanager(on_post)
    with webhook.stub as stub:
        assert run(settings(store, stub, every_s=1.0), clock=lambda: NOW_MS / 1000 + now_s) == 0
    first = webhook.requests[0]
    assert (first.method, first.path, first.headers["content-type"]) == ("POST", "/api/v2/alerts", "application/json")
    (firing,), (ended,) = webhook.alerts
    assert firing["labels"] == {
        "alertname": "TallystreamLagStatus",
        "severity": "critical",
        "owner": "tallystream",
        "group": "billing",
    }
    assert firing["annotations"]["summary"] == "Group billing is ERR"
    assert "What to do: Run tallystream lag with the group's name" in firing["annotations"]["description"]
    assert firing["annotations"]["runbook_url"].endswith("#lag-status")
    assert "2023-11-14T22:15:00" < firing["startsAt"] < "2023-11-14T22:18:20"
    assert "endsAt" not in firing
    assert ended == firing | {"endsAt": "2023-11-14T22:23:20.000Z"}


def test_nothing_is_posted_if_everything_is_well(store: StoreSettings) -> None:
    """The exit code is 0."""
    fill(store, Rounds(), range(301), lambda second: second * 1_000)
    webhook = Alertmanager()
    with webhook.stub as stub:
        assert run(settings(store, stub, once=True), clock=lambda: NOW_MS / 1000 + 300) == 0
    assert webhook.requests == []


@pytest.mark.parametrize(("away", "code", "name"), [(True, UNKNOWN, "SinkBehind"), (False, 0, "LagCollectorDown")])
def test_a_store_without_an_answer_or_without_lag_is_an_alert(
    store: StoreSettings, away: bool, code: int, name: str
) -> None:
    """Without it, nothing would say that no other alert can fire."""
    write(store, [])
    webhook = Alertmanager()
    with webhook.stub as stub:
        assert run(settings(AWAY if away else store, stub, once=True)) == code
    assert [one["labels"]["alertname"] for one in webhook.alerts[0]] == [f"Tallystream{name}"]


def test_a_refused_post_is_an_error(store: StoreSettings) -> None:
    """With `once` the error has the reason: the answer, a redirection that loses the body, or no answer."""
    write(store, [])
    with Alertmanager(lambda _: 400).stub as stub, pytest.raises(TallystreamError, match="it answered 400"):
        run(settings(store, stub, once=True))
    with Alertmanager(lambda _: 302).stub as stub, pytest.raises(TallystreamError, match="it answered 302"):
        run(settings(store, stub, once=True))
    with pytest.raises(TallystreamError, match="Connection refused"):
        run(AlertSettings(store=store, webhook="http://127.0.0.1:1", once=True))


def test_what_was_not_taken_is_posted_again(store: StoreSettings) -> None:
    """A webhook that is away for a time gets the alerts afterwards."""
    write(store, [])

    def on_post(number: int) -> int:
        if number == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return 503 if number == 1 else 200

    webhook = Alertmanager(on_post)
    with webhook.stub as stub:
        assert run(settings(store, stub, every_s=1.0)) == 0
    (refused,), (taken,) = webhook.alerts
    assert refused == taken


def test_an_end_is_posted_until_it_is_taken() -> None:
    """An alert keeps its begin while its words change. If it fires again before its end is taken, it has none."""
    alerts = Alerts()
    (first,) = alerts.update([behind("a")], NOW_MS)
    (changed,) = alerts.update([behind("a", "It is later.")], NOW_MS + 60_000)
    assert changed["startsAt"] == first["startsAt"] == "2023-11-14T22:11:19.000Z"
    assert changed["annotations"]["description"].startswith("It is later. What to do: ")
    for now_ms in (NOW_MS + 120_000, NOW_MS + 180_000):
        assert alerts.update([], now_ms) == [changed | {"endsAt": "2023-11-14T22:15:20.000Z"}]
    assert "endsAt" not in alerts.update([behind("a")], NOW_MS + 240_000)[0]
    assert len(alerts.update([behind("b")], NOW_MS + 300_000)) == 2
    alerts.accepted()
    assert [one["labels"]["group"] for one in alerts.update([behind("b")], NOW_MS + 360_000)] == ["b"]


def test_an_alert_does_not_end_before_it_began() -> None:
    """The clock may be set back."""
    alerts = Alerts(repeated=False)
    (ahead,) = alerts.update([Problem("Rejected", "They are.", "dead-letters", since_ms=NOW_MS + 9000)], NOW_MS)
    assert ahead["startsAt"] == "2023-11-14T22:13:20.000Z"
    (ended,) = alerts.update([], NOW_MS - 60_000)
    assert ended["endsAt"] == ended["startsAt"]


def test_an_alert_fires_after_the_time_of_its_rule() -> None:
    """It begins when its problem did, as far as that is known, else with the first reading of it in a row."""
    alerts = Alerts()
    assert alerts.update([OUTDATED], NOW_MS) == []
    assert alerts.update([OUTDATED], NOW_MS + 29_000) == []
    (firing,) = alerts.update([OUTDATED], NOW_MS + 30_000)
    assert firing["labels"]["alertname"] == "TallystreamLagCollectorDown"
    alerts.update([], NOW_MS + 60_000)
    alerts.accepted()
    assert alerts.update([OUTDATED], NOW_MS + 61_000) == []
    late = Problem("Group a is late", "It is.", "lag-seconds", since_ms=NOW_MS)
    for repeated in (True, False):
        alerts = Alerts(repeated=repeated)
        assert alerts.update([late], NOW_MS + 119_000) == []
        assert len(alerts.update([late], NOW_MS + 120_000)) == 1


def counted(name: str, count: int, ago_s: int, app: str = "orders", instances: int = 1) -> Point:
    fields = {"count": count, "instances": instances}
    return Point(name, {"app": app, "metric_type": "counter"}, fields, NOW_MS - ago_s * 1000)


def posted(store: StoreSettings, **options: Any) -> list[tuple[str, str, str]]:
    """Return the names, the metrics and the summaries of what one run posts about records and sums."""
    webhook = Alertmanager()
    with webhook.stub as stub:
        assert run(settings(store, stub, once=True, **options), clock=lambda: NOW_MS / 1000) == 0
    return [
        (one["labels"]["alertname"], one["labels"]["metric"], one["annotations"]["summary"])
        for one in webhook.alerts[0]
        if "metric" in one["labels"]
    ]


def test_records_that_were_lost_and_processed_twice(store: StoreSettings) -> None:
    """Each has an alert as soon as it is certain, and a threshold."""
    points = [counted("sent", 1000, 0), position("sent.position", "0", 0, 1000)]
    for name in ("done", "done.taken"):
        points += [counted(name, 900, 0, "billing"), position(f"{name}.position", "0", 100, 1000, app="billing")]
    points += [counted("done", 1003, 0, "audit"), position("done.position", "0", 0, 1000, app="audit", topic="other")]
    write(store, points)
    lost = ("TallystreamRecordsLost", "done", "billing lost 100 records of done")
    twice = ("TallystreamProcessedTwice", "done", "audit processed 3 records of done more than once")
    assert sorted(posted(store)) == [twice, lost]
    assert posted(store, thresholds=Thresholds.parse(["lost=100"])) == [twice]
    assert posted(store, thresholds=Thresholds.parse(["lost=99", "processed-twice=3"])) == [lost]


@pytest.mark.parametrize(
    ("grows", "instances", "fires"),
    [
        pytest.param(lambda ago: ago > 15, 1, True, id="stopped"),
        pytest.param(lambda ago: ago > 15, 0, False, id="no instance lives"),
        pytest.param(lambda _: True, 1, False, id="grows"),
        pytest.param(lambda ago: ago > 15 and ago % 30 == 0, 1, False, id="rarely grew"),
        pytest.param(lambda _: False, 1, False, id="never grew"),
    ],
)
def test_a_sum_that_grew_steadily_and_has_stopped(
    store: StoreSettings, grows: Callable[[int], bool], instances: int, fires: bool
) -> None:
    """It has stopped for a period, after five in which it grew."""
    points, count = [], 0
    for ago in range(120, -1, -1):
        count += grows(ago)
        points.append(counted("n", count, ago * 60, instances=instances))
    write(store, points)
    expected = ("TallystreamSumStoppedGrowing", "n", "n of orders has not grown for 10 minutes")
    assert posted(store) == [expected] * fires


def test_what_has_no_rule_is_no_alert() -> None:
    """The page shows that a group is WARN, or was not read, and no rule fires on it."""
    without = Problem("Group a is WARN", "It is late.", "lag-seconds", has_alert=False)
    (alert,) = Alerts(repeated=False).update([without, OUTDATED], NOW_MS)
    assert alert["labels"]["alertname"] == "TallystreamLagCollectorDown"
    assert alert["startsAt"] == "2023-11-14T22:13:20.000Z"
