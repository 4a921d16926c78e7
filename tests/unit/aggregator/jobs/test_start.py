"""Where a table begins, and the options of `aggregate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.simulation.direct import Direct
from support.simulation.system import TOPICS
from tallystream.errors import ConfigError
from tallystream_aggregator.jobs.aggregate import table_start as module
from tallystream_aggregator.jobs.aggregate.settings import (
    AggregateSettings,
    Start,
    parse_latency,
    parse_memory,
    parse_start,
)
from tallystream_aggregator.jobs.aggregate.table_start import TableStart, resolve, table_start
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.kafka.topic_selection import Offsets
from tallystream_aggregator.stream.broker import Bounds, BrokerError, Place
from tallystream_aggregator.stream.positions import PositionsRow
from tallystream_aggregator.table.limits import TableSettings
from tallystream_aggregator.table.sum_tags import SumTags


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


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_rate", 0),
        ("shards", 0),
        ("shards", 1025),
        ("epoch_s", 0.5),
        ("latency", "soon"),
        ("table", TableSettings(max_table_bytes=0)),
    ],
)
def test_the_error_of_an_invalid_setting_names_the_option(setting: str, value: object) -> None:
    """It begins with the option."""
    arguments = {"cluster": Cluster("broker:9092"), "checkpoint": Path("c"), setting: value}
    with pytest.raises(ConfigError, match=r"^--"):
        AggregateSettings(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "spacing_s"), [("1s", 0.5), ("500ms", 0.25), ("1.5 s", 0.75), ("1m", 30), ("low", 0.02)]
)
def test_a_step_begins_after_half_of_the_latency(text: str, spacing_s: float) -> None:
    """The other half is for what the step takes."""
    assert parse_latency(text) == spacing_s


@pytest.mark.parametrize("text", ["", "soon", "LOW", "1", "-1s", "0s", "199ms", "61s", "1h", "1s ", "nan s", "1e1s"])
def test_an_invalid_latency_is_rejected(text: str) -> None:
    """The error names the option, the value and the valid values."""
    with pytest.raises(ConfigError, match=r"^--latency( is not set|: '.+' can't be used); give a duration from 200ms"):
        parse_latency(text)


@pytest.mark.parametrize(("text", "size"), [("800m", 800 << 20), ("2g", 2 << 30), ("1Gb", 1 << 30), ("512", 512)])
def test_an_amount_of_memory_has_the_units_of_spark(text: str, size: int) -> None:
    """A number without a unit is in bytes."""
    assert parse_memory("--table-memory", text) == size


@pytest.mark.parametrize("text", ["", "-1g", "1.5g", "much", "1gib"])
def test_anything_else_is_rejected_with_the_name_of_the_option(text: str) -> None:
    """The message has the remedy."""
    with pytest.raises(ConfigError, match=r"--table-memory.*as in 800m or 2g"):
        parse_memory("--table-memory", text)


REGION = SumTags(drop=("region",))


@pytest.fixture(autouse=True)
def topics(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, int]]:
    """The first offsets of the topics that are read."""
    firsts = {"metrics": {"0": 0, "1": 0}}
    monkeypatch.setattr(module, "resolve", lambda *_: firsts)
    return firsts


def start(tmp_path: Path, published: PositionsRow | None = None, **options: Any) -> TableStart:
    """Return how a table begins. `published` is the newest positions row of its first shard."""
    direct = Direct()
    direct.cluster.create(TOPICS.ledger, 1)
    last = LedgerRow(shards=2, forget_after_ms=1, max_table_bytes=1, otlp=["otlp"])
    direct.cluster.append(Place(TOPICS.ledger, 0), b"", ledger.encode(last))
    broker: Any = direct.broker
    broker.partitions = lambda: {"metrics": [0, 1], "otlp": [0]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "visible_row", lambda *_: published)
        return table_start(AggregateSettings(Cluster("b:9092"), tmp_path, **options), broker)


def positions(topics: dict[str, dict[str, int]], **fields: Any) -> PositionsRow:
    return PositionsRow(shard=0, claim=(1, 0), step=1, positions=topics, topics={}, **{"otlp": ("otlp",)} | fields)


def test_a_new_table_is_as_the_settings_say(tmp_path: Path, topics: dict[str, dict[str, int]]) -> None:
    """It begins at the resolved offsets, with one shard and all tags by default. Several shards have a combiner."""
    assert start(tmp_path) == TableStart(topics, 1, SumTags())
    found = start(tmp_path, shards=3, sum_tags=REGION)
    assert found == TableStart(topics, 3, REGION)
    assert (start(tmp_path).loops, found.loops) == (1, 4)


def test_a_new_table_begins_in_the_middle_only_if_told(tmp_path: Path, topics: dict[str, dict[str, int]]) -> None:
    """Its sums would lack the records before."""
    topics["metrics"]["1"] = 7
    with pytest.raises(ConfigError, match="accept that with --from earliest"):
        start(tmp_path)
    assert start(tmp_path, start="earliest") == TableStart(topics, 1, SumTags())


def test_a_table_goes_on_as_it_is(tmp_path: Path) -> None:
    """Its shards and tags are those of its positions row, whatever checkpoint it has. `--from` is for a new one."""
    published = positions({"metrics": {"0": 5, "1": 5}}, of=2, sum_tags=REGION)
    for options in ({}, {"shards": 2, "sum_tags": REGION}, {"start": "earliest"}):
        assert start(tmp_path, published, **options) == TableStart({}, 2, REGION)


@pytest.mark.parametrize(
    ("options", "read", "message"),
    [
        ({"shards": 3}, "metrics", "the table has 2"),
        ({"sum_tags": SumTags()}, "metrics", "leave the option out, or run tallystream rebuild"),
        ({"partitions": (0,)}, "metrics", r"has read more \(topic → partitions: \{'metrics': \[1\]\}\)"),
        ({}, "other", "has read more"),
        ({"topic_pattern": ".*"}, "otlp", "add --otlp-topic otlp"),
    ],
)
def test_settings_that_do_not_fit_the_table_are_refused(
    tmp_path: Path, options: dict[str, Any], read: str, message: str
) -> None:
    """The sums include what was read forever, and their number of shards and tags is fixed."""
    published = positions({read: {"0": 5, "1": 5}}, of=2, sum_tags=REGION)
    with pytest.raises(ConfigError, match=message):
        start(tmp_path, published, **options)


def test_what_release_0_1_has_read_as_otlp_is_still_named(tmp_path: Path) -> None:
    """Its positions rows do not say it, and its ledger does."""
    published = positions({"otlp": {"0": 5}}, otlp=None)
    with pytest.raises(ConfigError, match="add --otlp-topic otlp"):
        start(tmp_path, published, topic_pattern=".*")


def test_otlp_topics_that_are_still_selected_are_fine(tmp_path: Path) -> None:
    """They are read as before."""
    published = positions({"otlp": {"0": 5}})
    found = start(tmp_path, published, table=TableSettings(otlp_topics=("otlp",)))
    assert found.offsets == {}
