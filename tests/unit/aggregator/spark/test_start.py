"""Where a table begins that was started before, but has no finished batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.kafka.topics import Topics
from tallystream_aggregator.spark.checkpoint import store_first
from tallystream_aggregator.spark.query import start
from tallystream_aggregator.spark.query.settings import AggregateSettings

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_aggregator.spark.query.start import StartPosition


@pytest.fixture(autouse=True)
def _topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic with the offsets 0 to 499, and an empty ledger."""
    ends = {"earliest": 0, "latest": 500}
    monkeypatch.setattr(Selection, "find", lambda *_: {"metrics": [0]})
    monkeypatch.setattr(start, "resolve", lambda position, *_: {"metrics": {"0": ends[position]}})
    monkeypatch.setattr(start.ledger, "read_rows", lambda *_, **__: [])


def _start(checkpoint: Path, **settings: Any) -> StartPosition:
    """Start the aggregator, and stop it before its first batch."""
    found = start.start_position(AggregateSettings("broker:9092", checkpoint, **settings), Topics(), {})
    store_first(checkpoint, found.offsets)
    return found


def _begin_batch(checkpoint: Path) -> None:
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text('v1\n{"batchTimestampMs":1}\n{"metrics":{"0":600}}')


def test_a_new_start_position_replaces_that_of_a_start_without_a_batch(tmp_path: Path) -> None:
    """Nothing has been summed from there yet."""
    assert _start(tmp_path, start="latest", accept_partial=True) == ({"metrics": {"0": 500}}, True)
    assert _start(tmp_path, start="earliest") == ({"metrics": {"0": 0}}, False)
    assert _start(tmp_path) == ({"metrics": {"0": 0}}, False)


def test_without_the_option_a_table_begins_where_the_last_start_said(tmp_path: Path) -> None:
    """It lacks the same records, and needs the same permission."""
    _start(tmp_path, start="latest", accept_partial=True)
    with pytest.raises(ConfigError, match=r"in the middle.*500.*--accept-partial"):
        _start(tmp_path)
    assert _start(tmp_path, accept_partial=True) == ({"metrics": {"0": 500}}, True)


def test_the_start_position_of_a_batch_that_has_begun_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The batch runs again with the same records. The option is ignored with a warning."""
    _start(tmp_path, start="latest", accept_partial=True)
    _begin_batch(tmp_path)
    with pytest.raises(ConfigError, match=r"in the middle.*500.*--accept-partial"):
        _start(tmp_path, start="earliest")
    assert "--from earliest is for a new one" in caplog.text
    assert _start(tmp_path, start="earliest", accept_partial=True) == ({"metrics": {"0": 500}}, True)
