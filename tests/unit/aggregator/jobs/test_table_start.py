"""Where a table begins: as its positions rows say, or as the settings say for a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.simulation.direct import Direct
from support.simulation.system import TOPICS
from tallystream.errors import ConfigError
from tallystream_aggregator.jobs.aggregate import table_start as module
from tallystream_aggregator.jobs.aggregate.settings import AggregateSettings
from tallystream_aggregator.jobs.aggregate.table_start import TableStart, table_start
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.clients import Cluster
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.positions import PositionsRow
from tallystream_aggregator.table.limits import TableSettings
from tallystream_aggregator.table.sum_tags import SumTags

REGION = SumTags(drop=("region",))


@pytest.fixture(autouse=True)
def topics(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, int]]:
    """The first offsets of the topics that are read."""
    firsts = {"metrics": {"0": 0, "1": 0}}
    monkeypatch.setattr(module, "require_append_time", lambda *_: None)
    monkeypatch.setattr(module.clients, "admin", lambda *_: None)
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
