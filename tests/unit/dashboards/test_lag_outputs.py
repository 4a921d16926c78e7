"""What the collector says to programs, what clocks say, and what the ledger adds."""

from __future__ import annotations

import json
import re
import urllib.request
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.invalid_times import INVALID_TIMES
from support.lag import Rounds, found, group
from tallystream.errors import ConfigError
from tallystream_aggregator.health.server import HealthServer
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.sqlite.reader import LocalReader
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_dashboards.lag.collector.http_api import Served
from tallystream_dashboards.lag.collector.spark_offsets import offsets
from tallystream_dashboards.lag.collector.tracker import Watched
from tallystream_dashboards.lag.exposition import exposition
from tallystream_dashboards.lag.formatting import skew as skew_words
from tallystream_dashboards.lag.history import TOLERANCE_MS, EndOffsetHistory, skew, skews

PAGE = Path(__file__).parents[3] / "docs" / "lag.md"
T0 = 1_700_000_100_000


def watched() -> Watched:
    """Return a look at two groups, one of them with a partition without a commit, and at one that is gone."""
    rounds = Rounds()
    for number in range(5):
        groups = [group("a group", (5, 10 + number), (None, 3)), group("well", (4, 4), topic="other")]
        groups += [group("gone", (0, 9))] if number < 3 else []
        last = found(*groups)
        rounds.points(last, T0 + number * 1000, {("other", 0): -7500})
    return Watched(tuple(rounds.states), last.places, (), T0 + 4000)


def test_the_exposition_has_the_exporters_names() -> None:
    """Lag and seconds by partition, sum and max by group; what is not known has no sample, what is gone neither."""
    seen = watched()
    text = exposition(seen.states, seen.places, seen.ts_ms)
    lines = text.splitlines()
    for line in (
        'kafka_consumergroup_group_lag{group="a group",topic="orders",partition="0"} 9',
        'kafka_consumergroup_group_lag_seconds{group="a group",topic="orders",partition="0"} 4.0',
        'kafka_consumergroup_group_offset{group="well",topic="other",partition="0"} 4',
        'kafka_consumergroup_group_max_lag{group="a group"} 9',
        'kafka_consumergroup_group_max_lag_seconds{group="well"} 0.0',
        'kafka_consumergroup_group_sum_lag{group="a group"} 9',
        'kafka_consumergroup_group_topic_sum_lag{group="a group",topic="orders"} 9',
        'kafka_partition_latest_offset{topic="orders",partition="0"} 14',
        'tallystream_group_status{group="well",status="OK"} 1',
        'tallystream_lag_seconds_bound{group="a group",topic="orders",partition="0"} 1',
        'tallystream_lag_skew_seconds{group="well",topic="other",partition="0"} -7.5',
        f"tallystream_lag_round_time_seconds {(T0 + 4000) / 1000}",
    ):
        assert line in lines
    assert "NaN" not in text
    assert 'group="gone"' not in text
    assert 'kafka_consumergroup_group_lag{group="a group",topic="orders",partition="1"}' not in text


def test_the_page_has_every_figure() -> None:
    """docs/lag.md names each family with its help and its labels, and no other."""
    seen = watched()
    text = exposition(seen.states, seen.places, seen.ts_ms)
    served = dict(re.findall(r"^# HELP (\w+) (.+)$", text, re.MULTILINE))
    rows = re.findall(r"^\| `((?:kafka|tallystream)_\w+)` \| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    assert {name: meaning for name, _, meaning in rows} == served
    for name, labels, _ in rows:
        found_labels = re.search(rf"^{name}\{{(.+)\}} ", text, re.MULTILINE)
        assert found_labels is None or re.findall(r"(\w+)=", found_labels[1]) == re.findall(r"`(\w+)`", labels), name


def asked(served: Served, path: str) -> tuple[int, dict[str, object]]:
    answer = served.groups(path)
    assert answer is not None
    return answer.status, json.loads(answer.body)


def test_groups_are_served_as_json(tmp_path: Path) -> None:
    """All of them, one by its (quoted) name, one that nobody knows, and another path."""
    served = Served(2, lambda: LocalReader(tmp_path / "none.db"), clock=lambda: 0, wall=lambda: T0 / 1000 + 5)
    assert asked(served, "/v1/groups")[0] == 503
    assert served.metrics().status == 503
    served.publish(watched())
    status, content = asked(served, "/v1/groups")
    assert status == 200
    assert [(one["group"], one["gone"], one["lag"]) for one in content["groups"]] == [  # type: ignore[attr-defined]
        ("gone", True, 9),
        ("a group", False, 9),
        ("well", False, 0),
    ]
    status, one = asked(served, "/v1/groups/a%20group")
    assert (status, one["seconds"], one["seconds_exact"], one["records_uncommitted"]) == (200, 4.0, False, 3)
    assert [(at["partition"], at["lag"]) for at in one["partitions"]] == [(1, None), (0, 9)]  # type: ignore[attr-defined]
    assert asked(served, "/v1/groups/nobody")[0] == 404
    assert served.groups("/v2/groups") is None
    first = served.metrics()
    assert first.status == 200
    # The text of a round is made once, whoever asks.
    assert served.metrics().body is first.body
    served.publish(replace(watched(), ts_ms=T0 + 5000))
    assert f"tallystream_lag_round_time_seconds {(T0 + 5000) / 1000}" in served.metrics().text


def test_a_past_moment_is_read_from_the_store(tmp_path: Path) -> None:
    """`?at=` gives what was then; a time that is none is refused in words."""
    store, rounds = LocalStore(tmp_path / "s.db", retention_ms=0), Rounds()
    for number in range(60):
        store.write(rounds.points(found(group("g", (0, number))), T0 + number * 1000))
    store.close()
    served = Served(2, lambda: LocalReader(tmp_path / "s.db"))
    then = "2023-11-14T22:15:30"  # T0 is 22:15:00
    assert asked(served, f"/v1/groups/g?at={then}")[1]["lag"] == 30
    assert asked(served, f"/v1/groups?at={then}")[1]["groups"][0]["lag"] == 30  # type: ignore[index]
    status, content = asked(served, "/v1/groups/g?at=noon")
    assert (status, "'noon'" in str(content["error"])) == (400, True)


@pytest.mark.parametrize("text", INVALID_TIMES)
def test_a_moment_that_no_store_can_have_is_refused(text: str) -> None:
    """A time that a store or a calendar cannot count is answered with 400, and no store is asked."""
    served = Served(2, lambda: pytest.fail("the store was opened"))
    status, content = asked(served, f"/v1/groups?at={quote(text)}")
    assert (status, repr(text) in str(content["error"])) == (400, True)


def test_a_store_that_cannot_be_read_is_said() -> None:
    """A store that is away, and one whose settings cannot work, such as a token without the right to read."""
    refused = ConfigError("INFLUXDB_TOKEN", "***", "give a token that may read")
    for error in (SinkUnavailableError("no answer"), refused):
        served = Served(2, Mock(side_effect=error))
        assert asked(served, "/v1/groups?at=2026-11-20T03:12") == (503, {"error": str(error)})


def test_an_address_that_cannot_be_read_is_refused() -> None:
    """A request line may hold anything; it is answered all the same."""
    served = Served(2, lambda: pytest.fail("the store was opened"))
    assert asked(served, "http://[/v1/groups")[0] == 400


def test_an_old_look_is_not_served_as_new() -> None:
    """A broker that has been away for long: no metrics, and the reason; health is about rounds."""
    now = T0 / 1000
    served = Served(2, lambda: pytest.fail("no store"), clock=lambda: now, wall=lambda: now)
    served.publish(watched())
    served.finished(through=True)
    assert (served.metrics().status, served.alive().status, served.ready().status) == (200, 200, 200)
    now += 60
    assert (served.metrics().status, served.alive().status) == (503, 503)
    served.finished(through=False)
    assert (served.alive().status, served.ready().status) == (200, 503)


def test_paths_that_are_no_fixed_ones_are_answered(tmp_path: Path) -> None:
    """Over HTTP a group's name is part of the path."""
    served = Served(2, lambda: LocalReader(tmp_path / "none.db"))
    served.publish(watched())
    server = HealthServer({"/metrics": served.metrics}, port=0, other=served.groups)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/groups/well", timeout=10) as answer:
            assert json.load(answer)["status"] == "OK"
    finally:
        server.close()


@given(st.integers(-(10**7), 10**7), st.integers(0, 60_000))
def test_skew_is_the_least_that_is_certain(off_ms: int, span_ms: int) -> None:
    """A clock that is off by so much is never shown as off by more, and within the tolerance not at all."""
    earliest_ms, latest_ms = T0, T0 + span_ms
    arrived_ms = earliest_ms + span_ms // 2
    seen = skew(arrived_ms + off_ms, earliest_ms, latest_ms)
    assert abs(seen) <= abs(off_ms)
    assert seen * off_ms >= 0
    assert seen == 0 or abs(off_ms) > TOLERANCE_MS
    assert abs(off_ms) - abs(seen) <= span_ms + TOLERANCE_MS


def test_skew_needs_to_know_when_the_record_came() -> None:
    """Before the history only "ahead" can be told; an offset that is not there yet tells nothing."""
    assert skew(T0 - 10**6, None, T0) == 0
    assert skew(T0 + 60_000, None, T0) == 60_000
    ends = EndOffsetHistory()
    ends.load([T0, T0 + 1000], [5, 10])
    assert skews({("t", 0): (7, T0 - 30_000), ("t", 1): (7, 0)}, {("t", 0): ends}, {}) == {("t", 0): -30_000}
    assert skews({("t", 0): (10, T0)}, {("t", 0): ends}, {}) == {}
    assert "37 s ahead" in skew_words(37_000)
    assert "37 s behind" in skew_words(-37_000)


def test_the_ledger_gives_each_querys_newest_offsets() -> None:
    """The highest epoch's newest row counts; the aggregator's query is its group, another has its own name."""
    rows = [
        LedgerRow(kind="opened", query="aggregate", epoch=1, ts=0),
        LedgerRow(kind="batch", query="aggregate", epoch=1, batch=1, ts=1, end={"metrics": {"0": 5}}),
        LedgerRow(kind="batch", query="aggregate", epoch=2, batch=2, ts=2, end={"metrics": {"0": 9, "1": 4}}),
        LedgerRow(kind="batch", query="aggregate", epoch=1, batch=3, ts=3, end={"metrics": {"0": 7}}),
        LedgerRow(kind="batch", query="enrich", epoch=1, batch=1, ts=1, end={"orders": {"0": 3}}),
    ]
    assert offsets(rows, "prod-") == {
        "prod-tallystream-aggregator": {("metrics", 0): 9, ("metrics", 1): 4},
        "ledger:enrich": {("orders", 0): 3},
    }
