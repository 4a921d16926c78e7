"""The collector: its groups, its schedule, its buffer, and what it serves to programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.lag import Rounds, group, round_of
from tallystream.process.signals import SignalSafeEvent
from tallystream_aggregator.kafka.lease import GROUP as LEASE
from tallystream_aggregator.sinks.base import Point, SinkUnavailableError
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_dashboards.lag.collector import collector
from tallystream_dashboards.lag.collector.collector import next_round
from tallystream_dashboards.lag.collector.http_api import LagApi
from tallystream_dashboards.lag.collector.kafka_admin import OffsetFetcher
from tallystream_dashboards.lag.collector.recorder import WriteBuffer
from tallystream_dashboards.lag.collector.records import Records
from tallystream_dashboards.lag.collector.settings import CollectSettings, Patterns
from tallystream_dashboards.lag.collector.tracker import Round
from tallystream_dashboards.lag.exposition import exposition


def point(ts_ms: int) -> Point:
    return Point("m", {}, {"v": 1}, ts_ms)


def test_the_buffer_is_bounded_and_drops_the_oldest() -> None:
    """Above the limit the oldest rounds are dropped and counted."""
    buffer = WriteBuffer(limit=5)
    for ts in range(4):
        buffer.add([point(ts), point(ts)])
    written: list[Point] = []
    buffer.write_to(Mock(write=written.extend))
    assert ([one.ts_ms for one in written], buffer.dropped, len(buffer)) == ([2, 2, 3, 3], 4, 0)


def test_one_round_larger_than_the_limit_is_kept() -> None:
    """The newest round is never dropped, however large it is."""
    buffer = WriteBuffer(limit=2)
    buffer.add([point(ts) for ts in range(9)])
    assert (len(buffer), buffer.dropped) == (9, 0)


def test_points_that_were_not_acknowledged_are_written_again() -> None:
    """A round counts as written only when the store says so: without an answer it is written again."""
    buffer, store = WriteBuffer(), Mock(write=Mock(side_effect=[SinkUnavailableError("no answer"), []]))
    buffer.add([point(1)])
    with pytest.raises(SinkUnavailableError):
        buffer.write_to(store)
    assert len(buffer) == 1
    buffer.write_to(store)
    assert store.write.call_args_list == [call([point(1)])] * 2


def test_the_lease_is_not_collected() -> None:
    """The group of the aggregators' lease reads no records, so it is left out, with a topic prefix, too."""
    selected = CollectSettings(store=StoreSettings.parse("local:x.db", env={}), exclude=("other",)).patterns
    assert [group for group in ("orders", "other", LEASE, "prod-" + LEASE) if selected.match(group)] == ["orders"]


@pytest.mark.parametrize(
    ("include", "exclude", "matched"),
    [
        (("*",), (), {"billing", "billing-test", "Orders"}),
        (("billing*",), (), {"billing", "billing-test"}),
        (("*",), ("*-test",), {"billing", "Orders"}),
        (("billing-test",), ("*",), set()),
        (("orders",), (), set()),
    ],
)
def test_patterns(include: tuple[str, ...], exclude: tuple[str, ...], matched: set[str]) -> None:
    """Patterns match complete names, case-sensitively. An exclusion takes precedence over an inclusion."""
    selected = Patterns(include, exclude)
    assert {name for name in ("billing", "billing-test", "Orders") if selected.match(name)} == matched


@given(st.floats(0, 1e6), st.floats(1, 60), st.floats(0, 1e4))
def test_rounds_keep_to_the_schedule(first: float, interval: float, late: float) -> None:
    """The next round is not in the past, at most one interval away, and a multiple of the interval after the first."""
    now = first + late
    due = next_round(first, interval, now)
    assert (due - first) / interval == pytest.approx(round((due - first) / interval))
    assert due >= now - 1e-6
    assert due - max(now, first) <= interval + 1e-6


DOCS = Path(__file__).parents[3] / "docs" / "lag.md"
T0 = 1_700_000_100_000


def newest() -> Round:
    """Return a round with two groups, one of them with a partition without a commit, and one that is gone."""
    rounds = Rounds()
    for number in range(5):
        groups = [group("a group", (5, 10 + number), (None, 3)), group("well", (4, 4), topic="other")]
        groups += [group("gone", (0, 9))] if number < 3 else []
        rounds.points(round_of(*groups), T0 + number * 1000)
    return rounds.newest_round


RECORDS = Point("tallystream.records", {"app": "a", "metric": "n"}, {"lost": 3, "counted_twice": 0}, T0)


def test_rounds_have_the_newest_comparison_until_it_is_too_old(caplog: pytest.LogCaptureFixture) -> None:
    """That goes for a store that can't be read, too, which is logged once, and for a clock that was set back."""
    answers = iter([RECORDS, None, None, RECORDS, None])

    def compare(_reader: object, at_ms: int) -> Iterator[Point]:
        found = next(answers)
        if found is None:
            raise SinkUnavailableError("no answer")
        yield replace(found, ts_ms=at_ms)

    clock = iter(range(T0, T0 + 150_000, 30_000))
    records = Records(Mock(), compare, lambda: next(clock) / 1000)
    assert records.at(T0) == ()
    for round_ms in (T0 + 1_000, T0 + 31_000, T0 + 61_000):
        records.read()
        assert records.at(round_ms) == (replace(RECORDS, ts_ms=round_ms),)
    assert records.at(T0 + 91_000) == records.at(T0 - 91_000) == ()
    assert len(caplog.records) == 1
    records.read()
    assert len(records.at(T0 + 91_000)) == 1
    records.read()
    assert len(caplog.records) == 2


def test_an_error_of_the_comparison_ends_the_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the collector would go on without comparisons, and nobody would know why."""

    def compare(*_: object) -> Iterator[Point]:
        raise ZeroDivisionError("a mistake in the program")

    monkeypatch.setattr(collector, "LagTracker", lambda *_, **__: Mock(round=newest))
    settings = CollectSettings(store=StoreSettings.parse(f"local:{tmp_path / 'store.db'}"), interval=1)
    with pytest.raises(ZeroDivisionError, match="a mistake in the program"):
        collector.collect(settings, {}, compare, SignalSafeEvent())


def test_metrics_have_the_names_of_kafka_lag_exporter() -> None:
    """There are samples of each partition and group. Unknown values and groups that are gone have none."""
    result = newest()
    text = exposition(result.states, result.bounds, result.ts_ms, [RECORDS]).text
    lines = text.splitlines()
    for line in (
        'kafka_consumergroup_group_lag{group="a group",partition="0",topic="orders"} 9.0',
        'kafka_consumergroup_group_lag_seconds{group="a group",partition="0",topic="orders"} 4.0',
        'kafka_consumergroup_group_offset{group="well",partition="0",topic="other"} 4.0',
        'kafka_consumergroup_group_max_lag{group="a group"} 9.0',
        'kafka_consumergroup_group_max_lag_seconds{group="well"} 0.0',
        'kafka_consumergroup_group_sum_lag{group="a group"} 9.0',
        'kafka_consumergroup_group_topic_sum_lag{group="a group",topic="orders"} 9.0',
        'kafka_partition_latest_offset{partition="0",topic="orders"} 14.0',
        'tallystream_group_status{group="well",status="OK"} 1.0',
        'tallystream_lag_seconds_bound{group="a group",partition="0",topic="orders"} 1.0',
        'tallystream_records{app="a",metric="n",number="lost"} 3.0',
        "tallystream_lag_round_time_seconds 1.700000104e+09",
    ):
        assert line in lines
    assert "NaN" not in text
    assert 'group="gone"' not in text
    assert 'kafka_consumergroup_group_lag{group="a group",partition="1",topic="orders"}' not in text


def test_every_metric_is_documented() -> None:
    """docs/lag.md names each metric with its help and its labels, and no other."""
    result = newest()
    text = exposition(result.states, result.bounds, result.ts_ms, [RECORDS]).text
    served = dict(re.findall(r"^# HELP (\w+) (.+)$", text, re.MULTILINE))
    rows = re.findall(r"^\| `((?:kafka|tallystream)_\w+)` \| (.+?) \| (.+?) \|$", DOCS.read_text(), re.MULTILINE)
    assert {name: meaning for name, _, meaning in rows} == served
    for name, labels, _ in rows:
        found_labels = re.search(rf"^{name}\{{(.+)\}} ", text, re.MULTILINE)
        assert found_labels is None or re.findall(r"(\w+)=", found_labels[1]) == sorted(
            re.findall(r"`(\w+)`", labels)
        ), name


def get(api: LagApi, path: str) -> tuple[int, dict[str, object]]:
    answer = api.answer(path)
    return answer.status, json.loads(answer.text)


def test_another_path_is_refused_with_the_list_of_all() -> None:
    """Any path in a request gets an answer, also one that is not valid."""
    api = LagApi(2, {"/v1/sums": lambda _: pytest.fail("the sums were read")})
    assert get(api, "/v2/sums") == (
        404,
        {"error": "there is no /v2/sums; there are /v1/sums, /metrics, /healthz, /readyz"},
    )
    assert get(api, "http://[/v1/groups")[0] == 400


def test_an_old_round_is_not_served_as_current() -> None:
    """If the broker has not answered for a minute, there are no metrics. Health depends on the last round."""
    now = T0 / 1000
    api = LagApi(2, {}, monotonic=lambda: now, clock=lambda: now)
    assert api.metrics().status == 503
    api.publish(newest())
    api.finished(succeeded=True)
    assert (api.metrics().status, api.health().status, api.readiness().status) == (200, 200, 200)
    now += 60
    assert (api.metrics().status, api.health().status) == (503, 503)
    api.finished(succeeded=False)
    assert (api.health().status, api.readiness().status) == (200, 503)


def test_a_round_is_current_for_as_much_longer_as_it_took() -> None:
    """So the rounds of many thousand groups are served without a gap."""
    result = replace(newest(), took_s=45.0)
    now = result.ts_ms / 1000
    api = LagApi(2, {}, clock=lambda: now)
    api.publish(result)
    now += 75
    assert api.metrics().status == 200
    now += 1
    assert api.metrics().status == 503


def test_a_collector_is_well_until_its_first_round_is_late() -> None:
    """It is not ready before one has reached the broker and the store, and /metrics has no numbers."""
    now = 50.0
    api = LagApi(20, {}, monotonic=lambda: now, clock=lambda: now)
    assert (api.metrics().status, api.health().status, api.readiness().status) == (503, 200, 503)
    now += 60
    assert api.health().status == 200
    now += 1
    assert api.health().status == 503


def test_a_long_round_is_healthy_while_the_broker_answers() -> None:
    """A round of many thousand groups may take longer than a minute. After 30 s without an answer it hangs."""
    now, listing = 0.0, Future[Any]()
    listing.set_result(Mock(valid=[], errors=[]))
    api = LagApi(2, {}, monotonic=lambda: now)
    admin = Mock(list_consumer_groups=lambda **_: listing)
    broker = OffsetFetcher(lambda: admin, timeout=5, stopping=lambda: False, answered=api.continues)
    for _ in range(4):
        now += 20
        broker.fetch(Patterns())
        assert api.health().status == 200
    now += 31
    assert api.health().status == 503
