"""`/v1/sums`, `/v1/instances`, `/v1/compare`, `/v1/groups`, `/v1/problems`: the JSON of the commands, over HTTP."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from support.lag import Rounds, group, round_of
from support.printed import NOW_MS, printed
from support.stores import write
from tallystream.ulid import ulid
from tallystream_aggregator.sinks.base import Point, Series
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli.servers.process import free_port
from tallystream_dashboards.lag.collector.http_api import LagApi, serve
from tallystream_dashboards.lag.collector.settings import CollectSettings
from tallystream_dashboards.store_api import routes
from tallystream_dashboards.terminal.compare import CompareSettings
from tallystream_dashboards.terminal.instances import InstancesSettings
from tallystream_dashboards.terminal.lag import ShowSettings
from tallystream_dashboards.terminal.show import TableSettings
from tallystream_dashboards.terminal.sums import SumsSettings
from tallystream_dashboards.terminal.top import TopSettings

MINUTE_MS = 60_000
HOUR_AGO = "2023-11-14T21:13:20"  # NOW_MS is 22:13:20


def counter(name: str, count: int, app: str, ts_ms: int) -> Point:
    return Point(name, {"app": app, "metric_type": "counter"}, {"count": count, "instances": 1, "lives": 1}, ts_ms)


def position(name: str, at: int, app: str, ts_ms: int) -> Point:
    tags = {"app": app, "metric_type": "position", "topic": "in", "partition": "0"}
    return Point(name, tags, {"start": 0, "position": at, "instances": 1, "lives": 1}, ts_ms)


@pytest.fixture
def store(tmp_path: Path) -> StoreSettings:
    """A store with the sums of two apps, an instance, and a group that has stopped."""
    points = []
    for ts_ms, count in ((NOW_MS - 3_700_000, 7), (NOW_MS - 30_000, 90)):
        points += [counter("billing.processed", count, "billing", ts_ms), counter("other", 1, "other", ts_ms)]
        points += [counter("billing.processed.taken", count, "billing", ts_ms)]
        for name in ("billing.processed.position", "billing.processed.taken.position"):
            points += [position(name, count - 2, "billing", ts_ms)]
    for ts_ms in range(NOW_MS - 5 * MINUTE_MS, NOW_MS, 1_000):
        tags = {"app": "billing", "metric_type": "counter", "instance": "billing-1"}
        points += [Point("instance:billing.processed", tags, {"count": 90, "life": ulid(NOW_MS - MINUTE_MS, 1)}, ts_ms)]
    rounds = Rounds()
    for ago in range(300, -1, -2):
        one = group("billing", (100, 1_000 - ago), members=0)
        points += rounds.points(round_of(one), NOW_MS - ago * 1_000)
    settings = StoreSettings.parse(f"local:{tmp_path / 'store.db'}", retention_days=0)
    assert write(settings, points) == 0
    return settings


@pytest.fixture
def api(store: StoreSettings) -> LagApi:
    return LagApi(2, routes(store, clock=lambda: NOW_MS / 1000))


def get(api: LagApi, path: str) -> tuple[int, dict[str, Any]]:
    answer = api.answer(path)
    assert answer.content_type == "application/json"
    return answer.status, json.loads(answer.text)


def commands_json(settings: TableSettings) -> list[dict[str, Any]]:
    """Return what a command prints with `--json`."""
    _, lines = printed(settings)
    return [json.loads(line) for line in lines]


def test_the_answers_have_the_objects_of_the_commands(store: StoreSettings, api: LagApi) -> None:
    """Each path returns the lines that its command prints with the options of the same names."""
    own = "billing.processed"
    for path, name, settings in (
        ("/v1/sums", "sums", SumsSettings(store=store, json=True)),
        (
            "/v1/sums?app=billing&name=*.proc*",
            "sums",
            SumsSettings(store=store, json=True, app="billing", pattern="*.proc*"),
        ),
        ("/v1/instances?app=billing", "instances", InstancesSettings(store=store, json=True, app="billing")),
        (
            f"/v1/instances?app=billing&metric={own}",
            "instances",
            InstancesSettings(store=store, json=True, app="billing", metric=own),
        ),
        ("/v1/compare", "comparisons", CompareSettings(store=store, json=True)),
        ("/v1/compare?app=billing", "comparisons", CompareSettings(store=store, json=True, app="billing")),
        (f"/v1/compare?processed={own}", "comparisons", CompareSettings(store=store, json=True, names=(own,))),
        (
            f"/v1/compare?sent=other&processed={own}",
            "comparisons",
            CompareSettings(store=store, json=True, names=("other", own)),
        ),
        ("/v1/compare?group=billing", "comparisons", CompareSettings(store=store, json=True, group="billing")),
        ("/v1/groups", "groups", ShowSettings(store=store, json=True)),
        ("/v1/groups?group=billing", "groups", ShowSettings(store=store, json=True, group="billing")),
    ):
        expected = commands_json(settings)
        assert expected, path
        assert get(api, path) == (200, {"at_ms": NOW_MS, name: expected})


def test_problems_are_those_of_top(store: StoreSettings, api: LagApi) -> None:
    """The answer says whether everything is well, and what is not."""
    (top,) = commands_json(TopSettings(store=store, json=True))
    status, found = get(api, "/v1/problems")
    assert (status, found) == (200, {name: top[name] for name in ("at_ms", "well", "problems")})
    assert found["well"] is False
    assert found["problems"][0].startswith("Group billing is ERR")


def test_problems_need_no_sums(api: LagApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe asks every few seconds, and a store may have thousands of sums: none is read."""
    read = []
    reads = LocalStore.read

    def recorded(reader: LocalStore, measurement: str, *args: Any, **kwargs: Any) -> list[Series]:
        read.append(measurement)
        return reads(reader, measurement, *args, **kwargs)

    monkeypatch.setattr(LocalStore, "read", recorded)
    assert get(api, "/v1/problems")[0] == 200
    assert all(name.startswith("tallystream.") for name in read), read


def test_a_moment_in_the_past(api: LagApi) -> None:
    """`?at=` returns the values of that time. An empty parameter is none."""
    status, found = get(api, f"/v1/sums?app=billing&name=&at={HOUR_AGO}")
    assert (status, found["at_ms"]) == (200, NOW_MS - 3_600_000)
    assert [(one["name"], one["value"]) for one in found["sums"]] == [
        ("billing.processed", 7),
        ("billing.processed.position", 5),
        ("billing.processed.taken", 7),
        ("billing.processed.taken.position", 5),
    ]
    status, found = get(api, "/v1/groups?group=billing&at=2023-11-14T22:12:20")
    assert (status, found["groups"][0]["lag"], found["groups"][0]["partitions"][0]["end"]) == (200, 840, 940)


@pytest.mark.parametrize(
    "path", ["/v1/sums?app=nobody", "/v1/instances?app=nobody", "/v1/compare?app=nobody", "/v1/groups?group=nobody"]
)
def test_nothing_found_is_an_empty_list(api: LagApi, path: str) -> None:
    """It is no error. A sentence says why."""
    status, found = get(api, path)
    assert (status, [*found.values()][:-1]) == (200, [NOW_MS, []])
    assert "nobody" in found["problem"]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/v1/sums?apps=orders", "'apps' is no parameter of this path, which has app, name, at"),
        ("/v1/problems?at=2026-11-20", "'at' is no parameter of this path, which has none"),
        ("/v1/sums?at=noon", "at: 'noon' is not a time; give one in UTC, as in 2026-11-20T03:12"),
        ("/v1/instances", "app is missing; give the name of an app, as in ?app=orders"),
        ("/v1/compare?sent=a", "processed is missing; give the counter of what was processed beside that of "),
        ("/v1/compare?app=a&processed=b", "app selects from all counters; leave it out, and give "),
    ],
)
def test_a_query_that_can_not_be_answered_is_refused(api: LagApi, path: str, error: str) -> None:
    """The status is 400, and the sentence names the parameter."""
    status, found = get(api, path)
    assert (status, found["error"][: len(error)]) == (400, error)


def test_a_store_that_does_not_answer_is_an_error() -> None:
    """The status is 503, with the store's own sentence."""
    away = StoreSettings("influxdb", "http://127.0.0.1:1", token="t", org="o", bucket="b")
    api = LagApi(2, routes(away))
    for path in ("/v1/sums", "/v1/instances?app=a", "/v1/compare", "/v1/groups", "/v1/problems"):
        status, found = get(api, path)
        assert (status, "127.0.0.1:1" in found["error"]) == (503, True)


def test_the_paths_are_served_by_the_collector(store: StoreSettings) -> None:
    """A program reads them from the collector's port. For another path it gets the list of all."""
    settings = CollectSettings(store=store, http_port=free_port())
    with serve(settings, routes(store, clock=lambda: NOW_MS / 1000)):
        url = f"http://127.0.0.1:{settings.http_port}"
        with urllib.request.urlopen(f"{url}/v1/sums?name=other", timeout=30) as answer:
            assert [one["value"] for one in json.load(answer)["sums"]] == [1]
        with pytest.raises(HTTPError) as refused:
            urllib.request.urlopen(f"{url}/v1/sum", timeout=30)
        with refused.value as answer:
            assert json.load(answer)["error"].startswith(
                "there is no /v1/sum; there are /v1/sums, /v1/instances, /v1/compare, /v1/groups, "
            )
