"""`tallystream compare`: what was sent against what was processed, from a local store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.lag import of_shipper
from support.printed import NOW_MS, cells, compared, counted, of_group, position, processed, sent
from support.stores import write
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink, open_store
from tallystream_dashboards.data.bounds import Bounds
from tallystream_dashboards.data.compare_reading import read_compared
from tallystream_dashboards.data.lines import Period
from tallystream_dashboards.exit_codes import BAD, GOOD, UNKNOWN
from tallystream_dashboards.terminal.compare import CompareSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tallystream_aggregator.sinks.base import Series

MINUTE_MS = 60_000


@pytest.fixture
def store(tmp_path: Path) -> StoreSettings:
    return StoreSettings.parse(f"local:{tmp_path / 'store.db'}", retention_days=0)


def test_a_pair_of_counters(store: StoreSettings) -> None:
    """A process was killed with 25 records. Twelve records wait: nothing is lost, and the numbers add up."""
    write(store, [*sent(1000, NOW_MS - MINUTE_MS), *processed(988, 988, 1013, NOW_MS - MINUTE_MS)])
    code, lines = compared(store, "orders.sent", "billing.processed")
    assert code == UNKNOWN
    assert list(map(cells, lines)) == [
        ["RECORDS", "CERTAINTY"],
        ["sent", "1,000", "exact"],
        ["counted as processed", "988", "exact"],
        ["lost", "0", "exact"],
        ["in flight", "12", "exact"],
        ["counted twice", "0", "exact"],
        ["processed twice", "0", "at least 0, at most 25"],
        [""],
        ["TOPIC", "PARTITION", "OFFSETS", "PROCESSED", "BEFORE", "IN FLIGHT"],
        ["in", "0", "1,000", "988", "0", "12"],
        [""],
        ["Nothing has changed since 22:12:20 UTC."],
        ["Taken for granted: all count with positions from their first record on, and no topic was created again."],
        ["Taken for granted: offsets are committed after the report, and none is passed over (retention, seek)."],
        ["Sent and in flight are as far as producers have reported: a killed one may have sent more."],
        ["Taken for granted: all count what they take, too, and report it before the work."],
        ["25 records were taken and not counted: in work, or by a process that was killed."],
        ["Taken for granted: all is in the store. No lag of the aggregator and the shipper is known."],
    ]


def test_the_exit_code_says_whether_all_is_well(store: StoreSettings) -> None:
    """It is 0 if nothing was lost or processed twice, whatever is in flight, and 1 if records were counted twice."""
    write(store, [*sent(1000), *processed(988, 988, 988)])
    assert compared(store, "orders.sent", "billing.processed")[0] == GOOD
    assert compared(store, "billing.processed")[0] == GOOD
    assert compared(store)[0] == GOOD, "a producer changes nothing"
    write(store, [*processed(990, 988, 990)])
    assert compared(store, "orders.sent", "billing.processed")[0] == BAD


def test_a_wrong_name(store: StoreSettings) -> None:
    """Those that are like it are named."""
    write(store, [*sent(1000), *processed(988, 988, 988)])
    for names in (("orders.sent", "billing.procesed"), ("orders/orders.sent", "billing/billing.procesed")):
        code, (text,) = compared(store, *names)
        assert (code, repr(names[1]) in text, "Did you mean billing.processed" in text) == (UNKNOWN, True, True)
        assert "orders.sent'" not in text
    code, (text,) = compared(store, app="bilings")
    assert (code, "Did you mean billing?" in text) == (UNKNOWN, True)
    code, (text,) = compared(store, "orders.sent", "billing/orders.sent")
    assert (code, "nothing of 'orders.sent' or 'billing/orders.sent' together" in text) == (UNKNOWN, True)


@pytest.mark.parametrize("chosen", [{"names": ("sent", "done")}, {"group": "billing"}])
def test_an_app_selects_from_all_counters_only(store: StoreSettings, chosen: dict[str, Any]) -> None:
    """With names or a group it would change nothing, and the numbers would be those of all apps."""
    with pytest.raises(ConfigError, match=r"--app: 'orders' can't be used; .* is APP/NAME\."):
        CompareSettings(store=store, app="orders", **chosen)


def test_the_moment_when_all_stood_still(store: StoreSettings) -> None:
    """While numbers change, those of the last moment without changes are shown, too."""
    write(store, [*sent(500, NOW_MS - MINUTE_MS), *processed(490, 480, 490, NOW_MS - MINUTE_MS)])
    write(store, [*sent(1000, NOW_MS - 1000), *processed(600, 590, 610, NOW_MS - 500)])
    _, lines = compared(store, "orders.sent", "billing.processed", json=True)
    found = json.loads(lines[0])
    assert (found["in_flight"], found["processed_twice"]) == (
        {"at_least": 410, "at_most": 410},
        {"at_least": 10, "at_most": 20},
    )
    assert found["still_ms"] == NOW_MS - MINUTE_MS
    assert found["still"]["twice"] == {"at_least": 10, "at_most": 10}
    assert found["partitions"] == [{"topic": "in", "partition": "0", "known": [0, 1000], "processed": [0, 590]}]


def test_a_counter_of_several_apps_and_of_one(store: StoreSettings) -> None:
    """A name is that of all apps; APP/NAME is that of one. Both may contain slashes."""
    write(store, [counted("sent", 5), counted("sent", 7, app="a/b"), counted("done", 5), counted("x/y", 3, app="a/b")])
    for name, number in (("sent", 12), ("orders/sent", 5), ("a/b/sent", 7), ("x/y", 3), ("a/b/x/y", 3)):
        found = json.loads(compared(store, name, "done", json=True)[1][0])
        assert found["sent"] == {"at_least": number, "at_most": None}
        assert found["counted"] == {"at_least": 5, "at_most": 5}


def test_consumers_with_different_tags(store: StoreSettings) -> None:
    """Queries of a Spark job read the same partitions. Each is compared by its tag; of all together little is known."""
    for query, count in (("scores", 80), ("alerts", 90)):
        write(store, [counted("spark.records", count, query=query)])
        write(store, [position("spark.records.position", "0", 0, count, query=query)])
    write(store, sent(100))
    for tags, number, text in (((), 170, "at least 0"), (("query=scores",), 80, "exact")):
        _, lines = compared(store, "orders.sent", "spark.records", tags=tags)
        rows = {row[0]: row[1:] for row in map(cells, lines)}
        assert (rows["counted as processed"], rows["counted twice"]) == ([f"{number}", "exact"], ["0", text])


def test_the_offsets_of_a_group_alone(store: StoreSettings) -> None:
    """Without counters, what was deleted before it was committed is lost, and what is not committed is in flight."""
    for partition, start, end, committed in (("0", 100, 500, 450), ("1", 100, 300, 40)):
        tags = {"group": "billing", "topic": "in", "partition": partition}
        write(store, [Point("tallystream.lag", tags, {"start": start, "end": end, "committed": committed}, NOW_MS)])
    code, lines = compared(store, group="billing")
    assert cells(lines[0]) == ["OFFSETS", "CERTAINTY"]
    assert (code, list(map(cells, lines[1:6]))) == (
        BAD,
        [
            ["sent", "660", "exact"],
            ["counted as processed", "350", "exact"],
            ["lost", "60", "at least 60"],
            ["in flight", "250", "exact"],
            ["counted twice", "0", "at least 0"],
        ],
    )


def test_a_loss_does_not_vanish_with_the_next_commit(store: StoreSettings) -> None:
    """Of 300 records that were deleted unread, the offsets say nothing later. The ones of before do."""
    write(store, [of_group(800, 1000, 500, 10 * MINUTE_MS), of_group(800, 1000, 900, 5000)])
    code, lines = compared(store, group="billing")
    assert code == BAD
    assert list(map(cells, lines[1:5])) == [
        ["sent", "500", "exact"],
        ["counted as processed", "100", "exact"],
        ["lost", "300", "at least 300"],
        ["in flight", "100", "exact"],
    ]


def test_a_gap_that_the_group_shows(store: StoreSettings) -> None:
    """If records were deleted unread, as many that were counted twice may be hidden, and are not told to be none."""
    write(store, [of_group(800, 1000, 500, 10 * MINUTE_MS), of_group(800, 1000, 1000, 5000)])
    write(store, [*sent(1000), *processed(1000, 1000, 1000)])
    code, lines = compared(store, "orders.sent", "billing.processed", group="billing")
    assert code == UNKNOWN
    assert [cells(lines[row])[2] for row in (3, 5)] == ["at least 0", "at least 0"]


@pytest.mark.parametrize(
    ("uncommitted_s", "lost", "in_flight"),
    [
        pytest.param(20, {"at_least": 12, "at_most": None}, {"at_least": 0, "at_most": 98}, id="all is known"),
        pytest.param(5, {"at_least": 0, "at_most": None}, {"at_least": 0, "at_most": None}, id="not reported yet"),
        pytest.param(101, {"at_least": 0, "at_most": None}, {"at_least": 0, "at_most": None}, id="too old"),
    ],
)
def test_counters_without_positions_and_a_group(
    store: StoreSettings, uncommitted_s: int, lost: dict[str, Any], in_flight: dict[str, Any]
) -> None:
    """What was sent after the offsets were read is not committed. What was just committed is not reported yet."""
    write(store, [of_group(0, 1000, 1000, uncommitted_s * 1000)])
    write(store, [counted("sent", 1000, NOW_MS - 100_000), counted("sent", 1098), counted("done", 988)])
    found = json.loads(compared(store, "sent", "done", group="billing", json=True)[1][0])
    assert (found["lost"], found["in_flight"]) == (lost, in_flight)


def test_a_store_that_has_only_a_half(store: StoreSettings) -> None:
    """The counters of the newest step may be there without their positions: the numbers are those of before.

    So on a busy system, where the shipper always has lag, the exit code tells whether records were lost or twice.
    """
    write(store, [*sent(1000, NOW_MS - 9_000), *processed(990, 990, 990, NOW_MS - 9_000)])
    write(store, [counted("billing.processed", 5000, app="billing")])
    assert compared(store, "orders.sent", "billing.processed")[0] == BAD
    write(store, of_shipper((8, 6, 7), (6, 7, 8), (4, 8, 9), (2, 9, 10), now_ms=NOW_MS))
    for names in (("orders.sent", "billing.processed"), ("billing.processed",), ()):
        code, lines = compared(store, *names)
        assert (code, "As of 22:13:15 UTC." in lines) == (GOOD, True)
        found = json.loads(compared(store, *names, json=True)[1][0])
        assert found["twice"] == {"at_least": 0} | (
            {"at_most": None, "granted": 0} if len(names) == 1 else {"at_most": 0}
        )
        assert (found["as_of_ms"], found["behind"]) == (NOW_MS - 4_001, ["tallystream-shipper"])


def test_a_store_that_is_too_far_behind(store: StoreSettings) -> None:
    """Whether records were lost or processed twice since then can't be told."""
    write(store, [*sent(1000, NOW_MS - 300_000), *processed(990, 980, 990, NOW_MS - 300_000)])
    write(store, of_shipper(*((ago_s, 7, 7 + (ago_s < 200)) for ago_s in range(299, 0, -2)), now_ms=NOW_MS))
    for names in (("orders.sent", "billing.processed"), ()):
        code, lines = compared(store, *names)
        assert (code, "As of 22:09:58 UTC: tallystream-shipper is behind." in lines) == (UNKNOWN, True)


def test_a_moment_before_the_range(store: StoreSettings) -> None:
    """What is known of that moment is read too: nothing seems to be lost because the range begins later."""
    write(store, [*sent(1000, NOW_MS - 1_500_000), *processed(1000, 1000, 1000, NOW_MS - 1_500_000)])
    write(store, [counted("billing.processed", 1100, NOW_MS - 1_000_000, app="billing")])
    write(store, of_shipper(*((ago_s, 7, 7 + (ago_s < 1_200)) for ago_s in range(1_600, 0, -20)), now_ms=NOW_MS))
    found = [
        json.loads(compared(store, "orders.sent", "billing.processed", range=length, json=True)[1][0])
        for length in ("15m", "1h")
    ]
    assert found[0] == found[1]
    assert (found[0]["counted"], found[0]["lost"]) == (
        {"at_least": 1000, "at_most": 1000},
        {"at_least": 0, "at_most": 0},
    )


def test_a_store_that_is_an_hour_behind(store: StoreSettings) -> None:
    """Then nothing is shown."""
    write(store, [*sent(1000, NOW_MS - 300_000), *processed(990, 980, 990, NOW_MS - 300_000)])
    write(store, of_shipper(*((ago_s, 7, 8) for ago_s in range(4_000, 0, -50)), now_ms=NOW_MS))
    for names in (("orders.sent", "billing.processed"), ()):
        code, lines = compared(store, *names)
        assert (code, lines) == (
            UNKNOWN,
            ["Nothing can be told: tallystream-shipper is behind in all that is known of the last hour."],
        )


def test_without_names_each_consumer_is_a_line(store: StoreSettings) -> None:
    """A counter is the sum over its tags. One without a count of what was taken may be a producer's, and is named."""
    write(
        store,
        [
            *sent(1000),
            counted("errors", 3),
            counted("instance:billing.processed", 600, instance="orders-1"),
            position("instance:billing.processed.position", "0", 100, 600),
            *processed(500, 500, 725),
        ],
    )
    code, lines = compared(store)
    assert code == UNKNOWN
    assert list(map(cells, lines[:2])) == [
        ["METRIC", "COUNTED", "LOST", "IN FLIGHT", "COUNTED TWICE", "PROCESSED TWICE", "SENT BY"],
        ["billing/billing.processed", "500", "0", "500", "0", "0 to 225", "orders/orders.sent"],
    ]
    found = json.loads(compared(store, json=True)[1][0])
    assert (found["metric"], found["sender"]) == ("billing/billing.processed", "orders/orders.sent")
    write(store, [*sent(1000), counted("other.sent", 9), position("other.sent.position", "0", 0, 9)])
    code, lines = compared(store)
    assert cells(lines[1])[2:] == ["\N{EN DASH}", "\N{EN DASH}", "0?", "0 to 225?", "\N{EN DASH}"]
    code, lines = compared(store, "billing.processed")
    assert (code, cells(lines[5])) == (
        UNKNOWN,
        ["counted twice", "0", "at least 0, at most 0 if every offset has a record"],
    )
    code, lines = compared(store)
    assert lines[-1].endswith("consumers: orders/orders.sent, orders/other.sent. Name one to compare it.")
    code, lines = compared(store, app="orders")
    assert (code, len(lines)) == (UNKNOWN, 1)
    code, lines = compared(store, app="payments")
    assert (code, lines[0].split(". ")[1]) == (UNKNOWN, "There are: billing, orders.")


def test_a_store_without_positions(store: StoreSettings) -> None:
    """What to count with is named."""
    write(store, [counted("errors", 3)])
    code, (line,) = compared(store)
    assert (code, "ConsumerProgress" in line) == (UNKNOWN, True)


class Written:
    """A reader of a store to which the shipper writes 100 more records, `times` times, between two reads."""

    def __init__(self, store: StoreSettings, times: int) -> None:
        self._reader, self._sink, self._times = open_store(store), open_sink(store), times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def read(self, measurement: str, fields: Sequence[str], **kwargs: Any) -> list[Series]:
        """Read, and then write if it was the counter."""
        found = self._reader.read(measurement, fields, **kwargs)
        if self._times and measurement == "records":
            self._times -= 1
            ts_ms, more = NOW_MS - self._times, 100 * (9 - self._times)
            self._sink.write(
                [counted("records", 1_000 + more, ts_ms), position("records.position", "0", 0, more, ts_ms=ts_ms)]
            )
        return found


@pytest.mark.parametrize("times", [0, 1, 3])
def test_all_numbers_are_of_one_moment(store: StoreSettings, times: int) -> None:
    """The shipper may write between the read of the counters and that of the positions. Then all are read again."""
    write(store, [counted("records", 1_000, NOW_MS - 9), position("records.position", "0", 0, 0, ts_ms=NOW_MS - 9)])
    found = read_compared(Written(store, times), None, "records", None, Period(NOW_MS, NOW_MS, NOW_MS + 1))
    assert found is not None
    assert found.at(NOW_MS).twice == Bounds(1_000, None, 1_000)
