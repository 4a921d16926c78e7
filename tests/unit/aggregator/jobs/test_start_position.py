"""The forms of `--from`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.jobs.aggregate.start_position import parse_start, resolve
from tallystream_aggregator.stream.broker import Bounds, BrokerError, Place

if TYPE_CHECKING:
    from tallystream_aggregator.jobs.aggregate.start_position import Start
    from tallystream_aggregator.kafka.topic_selection import Offsets

TEN_O_CLOCK = 1_795_168_800_000
"""2026-11-20T10:00 UTC in epoch ms"""


@pytest.mark.parametrize("text", ["2026-11-20T10:00", "2026-11-20 10:00:00", "2026-11-20T12:00+02:00"])
def test_a_time_without_an_offset_is_in_utc(text: str) -> None:
    """It does not depend on the machine's time zone."""
    assert parse_start(text) == TEN_O_CLOCK


def test_offsets_are_by_topic_and_partition() -> None:
    """They are JSON."""
    assert parse_start('{"metrics":{"0":123}}') == {"metrics": {"0": 123}}


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "{", '{"metrics":3}', "x2026-11-20T10:00", "Latest"),
        *('{"metrics":{"p0":1}}', '{"metrics":{"-1":1}}', '{"metrics":{"00":1}}'),
        *('{"\udcff":{}}', '{"x":' + "[" * 100_000),
    ],
    ids=lambda text: text[:20].encode("ascii", "backslashreplace").decode(),
)
def test_the_error_of_another_text_has_all_forms(text: str) -> None:
    """It names the option."""
    with pytest.raises(ConfigError, match=r"^--from.*earliest, latest, a time"):
        parse_start(text)


class HundredRecords:
    """A broker whose partition has the offsets 10 to 99."""

    def bounds(self, places: list[Place]) -> dict[Place, Bounds]:
        """Return the bounds of the partitions that exist."""
        return {place: Bounds(10, 100, 100) for place in places if place.partition == 0}

    def offsets_at(self, places: list[Place], ts_ms: int) -> dict[Place, int]:
        """Return the offset of a time: a record was appended in each ms."""
        return dict.fromkeys(places, 10 + ts_ms if ts_ms < 90 else -1)


def resolved(start: Start, partition: int = 0) -> Offsets:
    """Return where a start position begins."""
    broker: Any = HundredRecords()
    return resolve(start, {"metrics": [partition]}, broker)


@pytest.mark.parametrize(("start", "begin"), [("earliest", 10), ("latest", 100), (5, 15), (90, 100)])
def test_a_start_is_the_offset_of_its_record(start: Start, begin: int) -> None:
    """After the last record there is only the end."""
    assert resolved(start) == {"metrics": {"0": begin}}


def test_a_partition_that_the_broker_does_not_know_now_has_no_start() -> None:
    """It would begin at its first record later."""
    with pytest.raises(BrokerError, match="topic metrics: it has no partition 1 now"):
        resolved("latest", 1)


@pytest.mark.parametrize(("offset", "begin"), [(0, 10), (10, 10), (99, 99), (100, 100)])
def test_offsets_are_at_least_the_first_one_and_at_most_the_end(offset: int, begin: int) -> None:
    """Retention may have deleted the record."""
    assert resolved({"metrics": {"0": offset}}) == {"metrics": {"0": begin}}


def test_an_offset_beyond_the_end_is_rejected() -> None:
    """A typo would otherwise skip all records up to it."""
    with pytest.raises(ConfigError, match=r"--from.*metrics, partition 0, ends at 100, before 101"):
        resolved({"metrics": {"0": 101}})
