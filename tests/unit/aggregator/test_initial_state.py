"""The file with the initial state of a rebuilt table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.initial_state import InitialState, read_initial_state, write_initial_state
from tallystream_aggregator.jobs import rebuild
from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.kafka.reader import Read
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.spark.checkpoint import store_first
from tallystream_aggregator.spark.query import start
from tallystream_aggregator.spark.query.settings import AggregateSettings

if TYPE_CHECKING:
    from pathlib import Path


def test_an_initial_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Its folder is created, and no temporary file remains."""
    path, state = (
        tmp_path / "new" / "checkpoint.initial-state",
        InitialState([b"state"], {"metrics": {"0": 7}}, 3, [[b"entry"]]),
    )
    write_initial_state(path, state)
    assert read_initial_state(path) == state
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_an_initial_state_with_another_number_of_shards_is_rejected(tmp_path: Path) -> None:
    """A rebuild that was killed between its two files leaves one. A shard must not begin empty then."""
    path = tmp_path / "checkpoint.initial-state"
    write_initial_state(path, InitialState([b"0", b"1"], {}, 3, [[b"a"], [b"b"]]))
    assert [read_initial_state(path, shards=2).shards[shard] for shard in range(2)] == [b"0", b"1"]
    with pytest.raises(TallystreamError, match=r"checkpoint\.initial-state has 2 shards, the table 4"):
        read_initial_state(path, shards=4)


def test_an_initial_state_older_than_the_last_batches_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new rebuild includes these batches. Otherwise sums would decrease for a while.

    The checkpoint was lost later, or an aggregator was running during the rebuild.
    """
    batch = LedgerRow(kind="batch", query=ledger.QUERY, epoch=4, batch=1, ts=2, end={"metrics": {"0": 7}})
    monkeypatch.setattr(ledger, "read_topic", lambda *_, **__: iter([Read(b"k", ledger.encode(batch), 0)]))
    settings = AggregateSettings("broker:9092", tmp_path / "checkpoint")
    start._require_current(InitialState([b""], {"metrics": {"0": 7}}, 4), settings, Topics(), {})
    for end, epoch in ((7, 3), (6, 4)):
        with pytest.raises(
            ConfigError, match=r"--checkpoint.*checkpoint\.initial-state.*older.*run tallystream rebuild"
        ):
            start._require_current(InitialState([b""], {"metrics": {"0": end}}, epoch), settings, Topics(), {})
    (tmp_path / "checkpoint" / "commits").mkdir(parents=True)
    (tmp_path / "checkpoint" / "offsets").mkdir()
    (tmp_path / "checkpoint" / "commits" / "0").write_text("v1\n{}")
    (tmp_path / "checkpoint" / "offsets" / "0").write_text('v1\n{"batchTimestampMs":1}\n{"metrics":{"0":7}}')
    start._require_current(InitialState([b""], {}, 3), settings, Topics(), {})  # its first batch has just been finished


def test_a_rebuild_rejects_a_checkpoint_with_the_first_offsets_of_a_table(tmp_path: Path) -> None:
    """That table has planned no batch, but the aggregator would read from its offsets."""
    checkpoint = tmp_path / "checkpoint"
    store_first(checkpoint, {"metrics": {"0": 0}})
    with pytest.raises(ConfigError, match="it is in use"):
        rebuild.run(rebuild.RebuildSettings("127.0.0.1:1", checkpoint), lambda _: None)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x93",
        msgspec.msgpack.encode([[], {b"\xff": {}}, 1]),
        b"\x94\x90\x81\xa1\xff\x80\x01\x90",
        b"\x91" * 100_000,
    ],
    ids=["empty", "cut off", "another shape", "a topic that is not UTF-8", "nested too deep"],
)
def test_the_error_of_a_damaged_initial_state_has_a_remedy(tmp_path: Path, damaged: bytes) -> None:
    """It names the file."""
    path = tmp_path / "checkpoint.initial-state"
    path.write_bytes(damaged)
    with pytest.raises(
        TallystreamError, match=r"checkpoint\.initial-state can't be read \(.*\); restore it, or run tallystream reb"
    ):
        read_initial_state(path)
