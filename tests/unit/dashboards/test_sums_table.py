"""`tallystream sums`: its output and its exit code, from a local store, and for how long a table is waited for."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from support.levels import sum_point
from support.printed import NOW_MS, cells, printed
from support.stores import write
from tallystream_aggregator.sinks.base import Point, PointReader, SinkUnavailableError
from tallystream_aggregator.sinks.influxdb.sink import InfluxStore
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_dashboards.data import sums
from tallystream_dashboards.exit_codes import GOOD, UNKNOWN
from tallystream_dashboards.formatting import DASH
from tallystream_dashboards.terminal import show
from tallystream_dashboards.terminal.show import Shown, TableSettings
from tallystream_dashboards.terminal.sums import SumsSettings


@pytest.fixture
def store(tmp_path: Path) -> StoreSettings:
    """Return a store with a counter that grew by 120 in the last minute, a gauge, and points that are no sums."""
    store = StoreSettings.parse(f"local:{tmp_path / 'store.db'}")
    write(
        store,
        [
            sum_point("counter", 100, NOW_MS - 90_000, tags={"topic": "a"}),
            sum_point("counter", 220, NOW_MS - 5_000, tags={"topic": "a"}),
            sum_point("counter", 7, NOW_MS - 3_600_000, tags={"topic": "b"}),
            sum_point("gauge", 0, NOW_MS - 1_000, name="queue.size"),
            sum_point("counter", 3, NOW_MS - 1_000, name="tallystream.reporter.sent"),
            Point("tallystream.lag", {"group": "g"}, {"lag": 1}, NOW_MS),
            Point("instance:orders.processed", {"instance": "i", "metric_type": "counter"}, {"count": 1}, NOW_MS),
        ],
    )
    return store


def test_the_table_has_value_rate_instances_and_age(store: StoreSettings) -> None:
    """Each sum has a line, after the total over tags. The rate is the growth over a minute; a gauge has none."""
    code, lines = printed(SumsSettings(store=store))
    assert code == 0
    assert [cells(line) for line in lines] == [
        ["APP", "NAME", "TAGS", "TYPE", "VALUE", "RATE/S", "P50", "P99", "LIVING", "CHANGED"],
        ["orders", "orders.processed", "total of 2", "counter", "227", "2", "1", "5 s ago"],
        ["orders", "orders.processed", "topic=a", "counter", "220", "2", "1", "5 s ago"],
        ["orders", "orders.processed", "topic=b", "counter", "7", "0", "1", "1 h ago"],
        ["orders", "queue.size", "gauge", "0.50", DASH, "1", "1 s ago"],
    ]


def test_a_pattern_and_an_app_select_sums(store: StoreSettings) -> None:
    """A pattern also selects the reporters' own metrics. Nothing found is exit code 3 and a sentence."""
    assert [cells(line)[1] for line in printed(SumsSettings(store=store, pattern="queue.*"))[1][1:]] == ["queue.size"]
    found = printed(SumsSettings(store=store, pattern="tallystream.*"))[1][1:]
    assert [cells(line)[1] for line in found] == ["tallystream.reporter.sent"]
    code, lines = printed(SumsSettings(store=store, app="billing", pattern="x"))
    assert (code, lines) == (
        3,
        ["The store has no sum of the app 'billing' named 'x'. Check the name, and that the shipper runs."],
    )
    for pattern, names in (
        ("orders.proc", "Did you mean orders.processed?"),
        ("x", "There are: orders.processed, queu"),
    ):
        _, (line,) = printed(SumsSettings(store=store, pattern=pattern))
        assert line.startswith(f"The store has no sum named '{pattern}'. {names}")


def test_a_distribution_has_percentiles(tmp_path: Path) -> None:
    """A timer's are times, and numbers in JSON. A counter has none. `--all` shows Tallystream's own metrics."""
    store = StoreSettings.parse(f"local:{tmp_path / 'store.db'}")
    tags = {"app": "orders", "metric_type": "timer"}
    fields = {"count": 4, "sum": 1.0, "p50": 0.012, "p95": 0.5, "p99": 2.0, "instances": 1, "lives": 1}
    own = sum_point("counter", 3, NOW_MS - 1_000, name="tallystream.reporter.sent")
    write(store, [Point("batch", tags, fields, NOW_MS - 1_000), own])
    _, (_, timer) = printed(SumsSettings(store=store))
    assert cells(timer)[5:7] == ["12 ms", "2 s"]
    _, lines = printed(SumsSettings(store=store, all=True, json=True))
    assert [json.loads(line).get("p95") for line in lines] == [0.5, None]


def test_json_has_one_object_a_line(store: StoreSettings) -> None:
    """Programs get numbers, with null for what is unknown, and the time of the last change."""
    code, lines = printed(SumsSettings(store=store, json=True))
    assert code == 0
    first, _, gauge = map(json.loads, lines)
    assert first == {
        "app": "orders",
        "name": "orders.processed",
        "type": "counter",
        "tags": {"topic": "a"},
        "value": 220,
        "rate": 2.0,
        "instances": 1,
        "lives": 2,
        "changed_ms": NOW_MS - 5_000,
    }
    assert (gauge["value"], gauge["rate"]) == (0.5, None)


def test_large_floats_are_valid_json_and_short_text(tmp_path: Path) -> None:
    """No number is Infinity, which is no JSON, and no line of the table has hundreds of digits."""
    store = StoreSettings.parse(f"local:{tmp_path / 'store.db'}")
    tags = {"app": "a", "metric_type": "float_counter"}
    numbers = ((0.0, 30_000), (3e306, 0))
    write(store, [Point("f", tags, {"sum": number, "lives": 1}, NOW_MS - ago) for number, ago in numbers])
    _, (line,) = printed(SumsSettings(store=store, json=True))
    found = json.loads(line, parse_constant=pytest.fail)
    assert (found["value"], found["rate"]) == (3e306, pytest.approx(1e305))
    assert max(map(len, printed(SumsSettings(store=store))[1])) < 120


def test_a_store_that_can_not_be_read_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    """The sentence goes to standard error with --json, so that a program reads only JSON."""
    store = StoreSettings("influxdb", "http://127.0.0.1:1", token="t", org="o", bucket="b")
    assert printed(SumsSettings(store=store, json=True)) == (3, [])
    assert "The store can't be read" in capsys.readouterr().err


class Late(TableSettings):
    """A table that has something to show at its third reading. The second one fails."""

    readings = 0

    def shown(self, reader: PointReader, at_ms: int) -> Shown:  # noqa: ARG002 (nothing is read)
        """Count the readings."""
        type(self).readings += 1
        if self.readings == 2:
            raise SinkUnavailableError("the store is away.")
        return Shown([], "a sum\n", "", GOOD) if self.readings > 2 else Shown.nothing("nothing")


@pytest.mark.parametrize(("wait_s", "shown"), [(60.0, ("a sum\n", GOOD, 3)), (0.0, ("nothing\n", UNKNOWN, 1))])
def test_it_waits_until_there_is_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_s: float, shown: tuple[str, int, int]
) -> None:
    """Only what is found is printed. Without a wait, or after it, the first answer is printed."""
    monkeypatch.setattr(show, "RETRY_S", 0)
    monkeypatch.setattr(Late, "readings", 0)
    store = StoreSettings.parse(f"local:{tmp_path / 'store.db'}")
    out = io.StringIO()
    code = show.show(Late(store=store, wait_s=wait_s), out)
    assert (out.getvalue(), code, Late.readings) == shown


def test_the_types_of_a_metric_are_one_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which fields to read follows from the types of its sums. A metric without a sum is asked for only once."""
    store = InfluxStore("http://localhost", token="token", org="org", bucket="bucket")
    queries: list[str] = []
    monkeypatch.setattr(store, "_ask", lambda flux: queries.append(flux) or [])
    assert sums.read_sums(store, "orders.processed", start_ms=NOW_MS, until_ms=NOW_MS) == []
    assert len(queries) == 1
    store.close()
