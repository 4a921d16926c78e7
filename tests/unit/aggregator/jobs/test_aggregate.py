"""The sharding with which `tallystream aggregate` runs: that of an existing table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.jobs.aggregate.job import AggregateSettings, adopt_sharding
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.sharding import Sharding, sharding_of, sharding_path, write_sharding
from tallystream_aggregator.spark.query.query import Streams

if TYPE_CHECKING:
    from pathlib import Path


class Session:
    """A Spark session that only has settings."""

    def __init__(self) -> None:
        self.conf = self
        self.settings: dict[str, str] = {}

    def set(self, name: str, value: str) -> None:
        """Store a setting."""
        self.settings[name] = value


def test_a_standby_adopts_the_sharding_of_the_new_table(tmp_path: Path) -> None:
    """Another aggregator has started the table. Other options are rejected, and the file does not change."""
    checkpoint, topics, session = tmp_path / "c", Topics(), Session()
    settings = AggregateSettings("broker:9092", checkpoint)
    before = sharding_of(checkpoint, None, None)
    streams = Streams(session, settings, topics, shards=before.shards)  # type: ignore[arg-type]
    write_sharding(checkpoint, Sharding(4, 2))
    (checkpoint / "offsets").mkdir(parents=True)
    sharding, other = adopt_sharding(session, settings, topics, before, streams)  # type: ignore[arg-type]
    assert (sharding, other._shards) == (Sharding(4, 2), 4)
    assert session.settings == {"spark.sql.shuffle.partitions": "2"}
    assert adopt_sharding(session, settings, topics, sharding, other) == (sharding, other)  # type: ignore[arg-type]
    settings = AggregateSettings("broker:9092", checkpoint, shards=8)
    with pytest.raises(ConfigError, match=r"--shards.*8.*has 4"):
        adopt_sharding(session, settings, topics, Sharding(8, 8), streams)  # type: ignore[arg-type]
    assert sharding_of(checkpoint, None, None) == Sharding(4, 2)


def test_a_new_table_has_the_sharding_of_the_options(tmp_path: Path) -> None:
    """The aggregator that has the lease writes the file."""
    checkpoint = tmp_path / "c"
    settings = AggregateSettings("broker:9092", checkpoint, shards=4)
    adopt_sharding(Session(), settings, Topics(), Sharding(4, 4), None)  # type: ignore[arg-type]
    (checkpoint / "offsets").mkdir(parents=True)
    assert sharding_of(checkpoint, None, None) == Sharding(4, 4)


@pytest.mark.parametrize("written", [Sharding(2, 2), None])
def test_a_sharding_that_does_not_fit_the_state_is_rejected(tmp_path: Path, written: Sharding | None) -> None:
    """The file is missing or that of another table. Spark's log has the number of partitions."""
    checkpoint = tmp_path / "c"
    if written is not None:
        write_sharding(checkpoint, written)
    (checkpoint / "offsets").mkdir(parents=True)
    metadata = {"batchTimestampMs": 1, "conf": {"spark.sql.shuffle.partitions": "4"}}
    (checkpoint / "offsets" / "7").write_text("v1\n" + json.dumps(metadata) + '\n{"metrics":{"0":1}}')
    settings = AggregateSettings("broker:9092", checkpoint)
    with pytest.raises(ConfigError, match=r"--checkpoint.*has 4 partitions.*c\.sharding says [12]: restore that file"):
        adopt_sharding(Session(), settings, Topics(), written or Sharding(), None)  # type: ignore[arg-type]
    assert sharding_path(checkpoint).exists() == (written is not None)
